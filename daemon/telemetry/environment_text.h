// env.json: the settings of the launcher and the libraries, for later analysis.
#pragma once

#include <string>

namespace gaccd {

// A flat JSON object of the environment variables whose names begin with SLURM_, OMPI_MCA_,
// PRTE_MCA_, PMIX_MCA_, NCCL_, CUDA_, UCX_, GACCD_, OMP_ or DNNL_, sorted by name; no others are
// ever written.
// Names that suggest a secret (TOKEN, JWT, KEY, SECRET, PASS, CRED, AUTH, COOKIE, in any case) and
// Open MPI's key are omitted; values that look like keys or contain passwords become "[hidden]",
// others are truncated to 4096 bytes. environment: terminated by a null pointer.
[[nodiscard]] std::string EnvironmentJson(const char* const* environment);

}  // namespace gaccd
