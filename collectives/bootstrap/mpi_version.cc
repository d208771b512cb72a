#include "collectives/bootstrap/mpi_version.h"

#include <mpi.h>

#include <cstdio>

#include "collectives/base/strings.h"

namespace gaccd {

std::string MpiVersion() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "not known";
  const std::string library(text.data(), static_cast<std::size_t>(length));
  // In Open MPI, package, ident and date follow the comma.
  std::string version =
      StrCat(MPI_VERSION, ".", MPI_SUBVERSION, ", ", library.substr(0, library.find(',')));
#ifdef OMPI_MAJOR_VERSION
  version += StrCat(" (compiled with v", OMPI_MAJOR_VERSION, ".", OMPI_MINOR_VERSION, ".",
                    OMPI_RELEASE_VERSION, ")");
#endif
  return version;
}

MpiNumbers MpiVersionNumbers() {
  MpiNumbers numbers;
#ifdef OMPI_MAJOR_VERSION
  numbers.compiled = {OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION};
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return numbers;
  std::array<int, 3>& loaded = numbers.loaded;
  if (std::sscanf(text.data(), "Open MPI v%d.%d.%d", &loaded[0], &loaded[1], &loaded[2]) != 3) {
    loaded = {};
  }
#endif
  return numbers;
}

}  // namespace gaccd
