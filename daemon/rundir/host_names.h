// Lists of hosts on their way from files of a run to a shell.
#pragma once

#include <string>

namespace gaccd {

// "n3,n7" as it is where it is nothing but a list of host names, which `sbatch --exclude` takes;
// else empty: a list of names goes to the shell of a job script, nothing else may.
[[nodiscard]] std::string SafeHosts(const std::string& hosts);

}  // namespace gaccd
