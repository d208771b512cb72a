// The MPI versions at compile time and at run time.
#pragma once

#include <array>
#include <string>

namespace gaccd {

// "3.1, Open MPI v4.1.4 (compiled with v4.1.4)": the standard, the loaded library, and the version
// it was compiled with. Works before MPI_Init.
[[nodiscard]] std::string MpiVersion();

// The same as numbers. All 0: unknown, not Open MPI.
struct MpiNumbers {
  std::array<int, 3> compiled{};
  std::array<int, 3> loaded{};
};
[[nodiscard]] MpiNumbers MpiVersionNumbers();

}  // namespace gaccd
