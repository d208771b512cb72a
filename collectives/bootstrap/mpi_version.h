// Which MPI this program was compiled with and which one it runs with.
#pragma once

#include <string>

namespace gaccd {

// "3.1, Open MPI v4.1.4 (compiled with v4.1.4)": the standard it was compiled for, the library that
// is loaded, and its version of then. Works before MPI_Init.
[[nodiscard]] std::string MpiVersion();

}  // namespace gaccd
