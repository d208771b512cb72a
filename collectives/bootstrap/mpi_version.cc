#include "collectives/bootstrap/mpi_version.h"

#include <mpi.h>

#include <array>

#include "collectives/base/strings.h"

namespace gaccd {

std::string MpiVersion() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "not known";
  const std::string library(text.data(), static_cast<std::size_t>(length));
  // Open MPI goes on with package, ident and date.
  std::string version =
      StrCat(MPI_VERSION, ".", MPI_SUBVERSION, ", ", library.substr(0, library.find(',')));
#ifdef OMPI_MAJOR_VERSION
  version += StrCat(" (compiled with v", OMPI_MAJOR_VERSION, ".", OMPI_MINOR_VERSION, ".",
                    OMPI_RELEASE_VERSION, ")");
#endif
  return version;
}

}  // namespace gaccd
