// Which MPI this program was compiled with and which one it runs with.
#pragma once

#include <array>
#include <string>

namespace gaccd {

// "3.1, Open MPI v4.1.4 (compiled with v4.1.4)": the standard it was compiled for, the library that
// is loaded, and its version of then. Works before MPI_Init.
[[nodiscard]] std::string MpiVersion();

// The same as numbers, for comparison. All 0: not known, this is not Open MPI.
struct MpiNumbers {
  std::array<int, 3> compiled{};
  std::array<int, 3> loaded{};
};
[[nodiscard]] MpiNumbers MpiVersionNumbers();

}  // namespace gaccd
