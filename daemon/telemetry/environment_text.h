// env.json: the settings of the launcher and the libraries, for later questions.
#pragma once

#include <string>

namespace gaccd {

// One flat JSON object of the environment variables whose names begin with SLURM_, OMPI_MCA_,
// PMIX_MCA_, NCCL_, CUDA_, UCX_, GACCD_, OMP_ or DNNL_, sorted by name; nothing else of the
// environment is ever written. Names that sound like a secret (TOKEN, JWT, KEY, SECRET, PASS, CRED,
// AUTH, COOKIE, in any case) are left out, and so is Open MPI's key; values are cut at 4096 bytes.
// `environment` is terminated by a null pointer.
[[nodiscard]] std::string EnvironmentJson(const char* const* environment);

}  // namespace gaccd
