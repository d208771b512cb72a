#pragma once

#include <string>

namespace gaccd {

// "2.6.3 (compiled with 2.6.3)": the oneDNN that is loaded.
[[nodiscard]] std::string OneDnnVersion();

}  // namespace gaccd
