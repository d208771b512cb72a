// The text of slurm/launch, so that the program can write it where there is no source tree.
#pragma once

#include <string_view>

namespace gaccd {

[[nodiscard]] std::string_view LaunchText();

}  // namespace gaccd
