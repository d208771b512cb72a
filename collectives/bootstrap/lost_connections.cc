#include "collectives/bootstrap/lost_connections.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>

namespace {

std::atomic<bool> ignored{false};

}  // namespace

// Open MPI's own function: it calls it for its default error handler and, without a communicator
// and a code, for an error of a transport, for which it has no setting. Its calls come here, as the
// symbols of a program have priority over those of its libraries.
extern "C" __attribute__((visibility("default"))) void ompi_mpi_errors_are_fatal_comm_handler(
    void** comm, int* error_code, ...) {
  if (comm == nullptr && error_code == nullptr && ignored) return;
  std::va_list rest;
  va_start(rest, error_code);
  const char* const what = va_arg(rest, const char*);
  va_end(rest);
  using Handler = void (*)(void**, int*, ...);
  const auto handler =
      reinterpret_cast<Handler>(::dlsym(RTLD_NEXT, "ompi_mpi_errors_are_fatal_comm_handler"));
  if (handler == nullptr) std::abort();
  handler(comm, error_code, what);
}

namespace gaccd {

void IgnoreLostConnections() { ignored = true; }

}  // namespace gaccd
