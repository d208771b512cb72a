// The versions of oneDNN at compile time and at run time.
#pragma once

#include <array>
#include <string>

namespace gaccd {

// "2.6.3 (compiled with 2.6.3)": the loaded version.
[[nodiscard]] std::string OneDnnVersion();

// The same as numbers, for comparison.
struct OneDnnNumbers {
  std::array<int, 3> compiled{};
  std::array<int, 3> loaded{};
};
[[nodiscard]] OneDnnNumbers OneDnnVersionNumbers();

}  // namespace gaccd
