// Owners and translations for MPI: the thin layer that everything with mpi.h in it stands on.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <string_view>
#include <utility>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"

namespace gaccd {

// Success, or kUnavailable with `what` and MPI's own text. Works with communicators whose error
// handler returns codes.
[[nodiscard]] Status MpiStatus(int code, std::string_view what);

[[nodiscard]] MPI_Datatype MpiType(DType dtype);

// Owns a communicator. MPI_Comm_free is collective, and a rank does not know whether the others
// still come, so the handle is left to the end of the process.
class MpiCommHandle {
 public:
  MpiCommHandle() = default;
  explicit MpiCommHandle(MPI_Comm comm) : comm_(comm) {}
  MpiCommHandle(MpiCommHandle&& other) noexcept
      : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  MpiCommHandle& operator=(MpiCommHandle&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }

  // Collective copies of / parts of `comm`; errors return codes. color < 0: an empty handle.
  static Result<MpiCommHandle> Duplicate(MPI_Comm comm);
  static Result<MpiCommHandle> Split(MPI_Comm comm, int color, int key);

  [[nodiscard]] MPI_Comm get() const { return comm_; }
  [[nodiscard]] bool empty() const { return comm_ == MPI_COMM_NULL; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

// One segment of shared memory per rank of a communicator whose ranks share a node. Segments are
// aligned to 4096 bytes and not initialised; their pages exist once they are touched. Left to the
// end of the process, as above.
class SharedWindow {
 public:
  SharedWindow() = default;
  SharedWindow(SharedWindow&& other) noexcept { *this = std::move(other); }
  SharedWindow& operator=(SharedWindow&& other) noexcept;

  // Collective over node_comm; the same `bytes` on every rank.
  static Result<SharedWindow> Allocate(MPI_Comm node_comm, std::size_t bytes);

  // Where the segment of a rank of node_comm is in this process.
  [[nodiscard]] std::byte* segment(int local_rank) const {
    return base_ + static_cast<std::size_t>(local_rank) * stride_;
  }
  // Bytes of one segment, rounded up to whole pages.
  [[nodiscard]] std::size_t bytes() const { return stride_; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::byte* base_ = nullptr;
  std::size_t stride_ = 0;
};

}  // namespace gaccd
