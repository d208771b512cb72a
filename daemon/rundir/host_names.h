// Validation of host lists that are passed from files of a run to a shell.
#pragma once

#include <string>

namespace gaccd {

// `hosts` if it is a list of host names ("n3,n7"), as for `sbatch --exclude`; otherwise empty,
// because the result is passed to the shell of a job script.
[[nodiscard]] std::string SafeHosts(const std::string& hosts);

}  // namespace gaccd
