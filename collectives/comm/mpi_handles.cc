#include "collectives/comm/mpi_handles.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t RoundUpToPages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Open MPI gives no reason. If /dev/shm is smaller than requested, a restart would fail again.
Status NoSharedMemory(int code, std::size_t bytes, int ranks) {
  const std::string what = StrCat("shared memory of ", bytes, " bytes for ", ranks, " ranks");
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0) return MpiStatus(code, what);
  const std::uint64_t free = std::uint64_t{info.f_bavail} * info.f_frsize;
  Status status = MpiStatus(code, StrCat(what, " (", free, " bytes are free in /dev/shm)"));
  if (free >= bytes) return status;
  return {ErrorKind::kConfig, StrCat("no memory for the ranks of a node: ", status.message())};
}

// Collective. Open MPI reports a lack of memory only to the first rank, and the others wait for it.
// A rank that is alone on its node gets other memory than /dev/shm.
Status CheckSharedMemory(MPI_Comm node_comm, std::size_t bytes, int ranks) {
  if (ranks == 1) return Status::Ok();
  struct statvfs info {};
  const bool known = std::getenv("OMPI_MCA_osc_sm_backing_directory") == nullptr &&
                     ::access("/dev/shm", W_OK) == 0 && ::statvfs("/dev/shm", &info) == 0;
  std::uint64_t free = known ? std::uint64_t{info.f_bavail} * info.f_frsize : bytes;
  GACCD_RETURN_IF_ERROR(
      MpiStatus(MPI_Bcast(&free, 1, MPI_UINT64_T, 0, node_comm), "broadcast of free memory"));
  return free >= bytes ? Status::Ok() : NoSharedMemory(MPI_ERR_NO_MEM, bytes, ranks);
}

Result<MPI_Comm> WithReturnedErrors(int code, MPI_Comm comm, std::string_view what) {
  GACCD_RETURN_IF_ERROR(MpiStatus(code, what));
  if (comm != MPI_COMM_NULL) {
    GACCD_RETURN_IF_ERROR(MpiStatus(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), what));
  }
  return comm;
}

}  // namespace

Status MpiStatus(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return Status::Ok();
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  return {ErrorKind::kUnavailable,
          StrCat(what, ": ", std::string_view(text.data(), static_cast<std::size_t>(length)),
                 " (MPI error ", code, ")")};
}

MPI_Datatype MpiType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kI64:
      return MPI_INT64_T;
    case DType::kU8:
      return MPI_UINT8_T;
    case DType::kBF16:  // can be moved, but not summed by MPI
    case DType::kFP16:
      return MPI_UINT16_T;
  }
  return MPI_DATATYPE_NULL;
}

Result<MPI_Comm> DuplicateComm(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  const int code = MPI_Comm_dup(comm, &copy);
  return WithReturnedErrors(code, copy, "MPI_Comm_dup");
}

Result<MPI_Comm> SplitComm(MPI_Comm comm, int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  const int code = MPI_Comm_split(comm, color < 0 ? MPI_UNDEFINED : color, key, &part);
  return WithReturnedErrors(code, part, "MPI_Comm_split");
}

Result<SharedWindow> SharedWindow::Allocate(MPI_Comm node_comm, std::size_t bytes) {
  SharedWindow made;
  made.stride_ = RoundUpToPages(bytes);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(node_comm, &rank);
  MPI_Comm_size(node_comm, &size);
  // Rank 0 requests all of it, so that segments are equally spaced in every process; one extra
  // page, because MPI does not guarantee page alignment.
  const std::size_t total = made.stride_ * static_cast<std::size_t>(size) + kPage;
  GACCD_RETURN_IF_ERROR(CheckSharedMemory(node_comm, total, size));
  void* own = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const int code = MPI_Win_allocate_shared(rank == 0 ? static_cast<MPI_Aint>(total) : 0, 1,
                                           MPI_INFO_NULL, node_comm, &own, &window);
  if (code != MPI_SUCCESS) return NoSharedMemory(code, total, size);
  MPI_Aint found = 0;
  int unit = 0;
  void* base = nullptr;
  GACCD_RETURN_IF_ERROR(
      MpiStatus(MPI_Win_shared_query(window, 0, &found, &unit, &base), "MPI_Win_shared_query"));
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  made.base_ = static_cast<std::byte*>(base) + (RoundUpToPages(address) - address);
  return made;
}

}  // namespace gaccd
