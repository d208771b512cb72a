// env.json: the settings of the launcher and the libraries, for later questions.
#pragma once

#include <string>

namespace gaccd {

// One flat JSON object of the environment variables whose names begin with SLURM_, OMPI_MCA_,
// PMIX_MCA_, NCCL_, CUDA_, UCX_, GACCD_, OMP_ or DNNL_, sorted by name. Values of names that sound
// like a secret (TOKEN, JWT, KEY, SECRET, PASSWORD) are left out. `environment` is terminated by a
// null pointer.
[[nodiscard]] std::string EnvironmentJson(const char* const* environment);

}  // namespace gaccd
