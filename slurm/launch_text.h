// The text of slurm/launch, embedded so that gaccd can write it without a source tree.
#pragma once

#include <string_view>

namespace gaccd {

[[nodiscard]] std::string_view LaunchText();

}  // namespace gaccd
