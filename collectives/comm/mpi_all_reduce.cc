// All-reduce of the MPI communicator. Order of the sum: local ranks in rank order, whatever path
// the data takes inside a node; then nodes in the order of MPI, which may differ from run to run.
#include <algorithm>
#include <cstring>

#include "collectives/comm/mpi_communicator.h"
#include "collectives/comm/sum.h"

namespace gaccd {
namespace {

// Up to this size every rank sums everything: twice the work, but one barrier instead of two.
constexpr std::size_t kSmallBytes = std::size_t{16} << 10;

// An in-place all-reduce is divided into about this many chunks per rank, with sizes in bytes
// within these limits, cut at cache lines.
constexpr std::size_t kChunksPerRank = 4;
constexpr std::size_t kMinChunk = std::size_t{16} << 10;
constexpr std::size_t kMaxChunk = std::size_t{512} << 10;
constexpr std::size_t kLine = 64;

std::byte* At(void* data, std::size_t element, DType dtype) {
  return static_cast<std::byte*>(data) + element * SizeOf(dtype);
}
const std::byte* At(const void* data, std::size_t element, DType dtype) {
  return static_cast<const std::byte*>(data) + element * SizeOf(dtype);
}

// In place: every copy receives the sum.
Status ReduceToAll(DType dtype, std::span<void* const> copies, Slice slice) {
  return SumRange(dtype, copies, slice.first, copies, slice.first, slice.count);
}

}  // namespace

// One piece of a two-level all-reduce in progress.
struct MpiCommunicator::PendingReduce {
  bool active = false;
  std::size_t first = 0;  // offset in the whole buffer
  std::size_t count = 0;
  std::vector<void*> copies;  // pointers to the piece of every local rank
  Slice slice;                // the part of the piece summed by this rank's lane
  MPI_Request request = MPI_REQUEST_NULL;
};

Status MpiCommunicator::DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) {
  if (in.dtype == DType::kBF16 && !one_node()) {
    std::vector<float> wide(in.count);
    WidenBf16({static_cast<const std::uint16_t*>(in.data), in.count}, wide);
    GACCD_RETURN_IF_ERROR(DoAllReduceSum(View(std::span(wide)), View(std::span(wide)), stream));
    NarrowBf16(wide, {static_cast<std::uint16_t*>(out.data), out.count});
    return Status::Ok();
  }
  const bool small = one_node() && in.bytes() <= kSmallBytes && in.count <= segment_;
  const std::int64_t place = small ? kPrivate : node_->FindPlace(out);
  const std::uint64_t shape = HashShape({in.count, static_cast<std::uint64_t>(in.dtype)});
  if (size_ == 1) {
    if (in.count > 0 && in.data != out.data) std::memcpy(out.data, in.data, in.bytes());
    return Status::Ok();
  }
  return Run(Operation::kAllReduce, shape, place, [&]() -> Status {
    if (small) return ReduceSmall(in, out);
    GACCD_RETURN_IF_ERROR(watch_->BarrierAndCheck());
    const bool shared = watch_->SamePlace();
    if (!one_node()) return ReduceTwoLevels(in, out, shared ? place : kPrivate);
    if (!shared) return ReduceStaged(in, out);
    if (in.data != out.data) {
      std::memcpy(out.data, in.data, in.bytes());
      GACCD_RETURN_IF_ERROR(watch_->NodeBarrier());
    }
    return ReduceInPlace(out, place);
  });
}

Status MpiCommunicator::ReduceSmall(ConstBuffer in, MutableBuffer out) {
  const std::size_t half = NextHalf();
  if (in.count > 0) std::memcpy(node_->staging(node_->rank(), half), in.data, in.bytes());
  GACCD_RETURN_IF_ERROR(watch_->BarrierAndCheck());
  return SumRange(out.dtype, NodeStaging(half), 0, {&out.data, 1}, 0, out.count);
}

// The data of all ranks is visible and complete; the sum is written to all ranks. If every rank has
// a core, each takes a fixed slice, so that much of it is in the core's cache. With fewer cores,
// running ranks take chunk after chunk, so that none waits for a rank that is not scheduled.
Status MpiCommunicator::ReduceInPlace(MutableBuffer data, std::int64_t place) {
  for (int i = 0; i < node_->size(); ++i) {
    copies_[static_cast<std::size_t>(i)] = node_->AtPlace(place, i);
  }
  if (!oversubscribed_) {
    GACCD_RETURN_IF_ERROR(
        ReduceToAll(data.dtype, copies_, WorkerSlice(data.count, node_->rank(), node_->size())));
    return watch_->NodeBarrier();
  }
  const std::size_t share = data.bytes() / (kChunksPerRank * copies_.size());
  const std::size_t chunk =
      std::clamp(share / kLine * kLine, kMinChunk, kMaxChunk) / SizeOf(data.dtype);
  Status summed;
  GACCD_RETURN_IF_ERROR(watch_->ShareWork((data.count + chunk - 1) / chunk, [&](std::size_t i) {
    const Slice part = {i * chunk, std::min(chunk, data.count - i * chunk)};
    if (summed.ok()) summed = ReduceToAll(data.dtype, copies_, part);
  }));
  return summed;
}

// Pipelined: while one piece is summed, the next one is copied in.
Status MpiCommunicator::ReduceStaged(ConstBuffer in, MutableBuffer out) {
  const std::size_t step = StagedElements(in.dtype);
  const auto piece_size = [&](std::size_t first) { return std::min(step, in.count - first); };
  const auto copy_in = [&](std::size_t first, std::size_t half) {
    std::memcpy(node_->staging(node_->rank(), half), At(in.data, first, in.dtype),
                piece_size(first) * SizeOf(in.dtype));
  };
  std::size_t half = NextHalf();
  copy_in(0, half);
  GACCD_RETURN_IF_ERROR(watch_->NodeBarrier());
  for (std::size_t first = 0; first < in.count; first += step) {
    const std::size_t count = piece_size(first);
    GACCD_RETURN_IF_ERROR(
        ReduceToAll(in.dtype, NodeStaging(half), WorkerSlice(count, node_->rank(), node_->size())));
    const std::size_t summed = half;
    if (first + step < in.count) {
      half = NextHalf();
      copy_in(first + step, half);
    }
    GACCD_RETURN_IF_ERROR(watch_->NodeBarrier());
    std::memcpy(At(out.data, first, out.dtype), node_->staging(node_->rank(), summed),
                count * SizeOf(out.dtype));
  }
  return Status::Ok();
}

// place: of the data on every rank of this node, or kPrivate. The pieces, and so the messages
// between nodes, do not depend on it: nodes may differ.
Status MpiCommunicator::ReduceTwoLevels(ConstBuffer in, MutableBuffer out, std::int64_t place) {
  const bool staged = place == kPrivate;
  if (!staged && in.data != out.data) std::memcpy(out.data, in.data, in.bytes());
  PendingReduce before;
  PendingReduce now;
  for (std::size_t first = 0; first < in.count; first += segment_) {
    now.active = true;
    now.first = first;
    now.count = std::min(segment_, in.count - first);
    now.copies.resize(copies_.size());
    const std::size_t half = staged ? NextHalf() : 0;
    for (int i = 0; i < node_->size(); ++i) {
      void* copy = staged ? node_->staging(i, half) : At(node_->AtPlace(place, i), first, in.dtype);
      now.copies[static_cast<std::size_t>(i)] = copy;
    }
    if (staged) {
      std::memcpy(now.copies[static_cast<std::size_t>(node_->rank())], At(in.data, first, in.dtype),
                  now.count * SizeOf(in.dtype));
    }
    watch_->SetProgressRequest(before.active ? &before.request : nullptr);
    GACCD_RETURN_IF_ERROR(watch_->NodeBarrier());
    GACCD_RETURN_IF_ERROR(BeginLane(&now, in.dtype));
    GACCD_RETURN_IF_ERROR(FinishLane(&before, out, staged));
    std::swap(before, now);
  }
  return FinishLane(&before, out, staged);
}

Status MpiCommunicator::BeginLane(PendingReduce* pending, DType dtype) {
  if (lane_comm_ == MPI_COMM_NULL) return Status::Ok();
  pending->slice = WorkerSlice(pending->count, node_->rank(), lanes_);
  if (pending->slice.count == 0) return Status::Ok();  // on all nodes, as the slices are the same
  void* const own =
      At(pending->copies[static_cast<std::size_t>(node_->rank())], pending->slice.first, dtype);
  GACCD_RETURN_IF_ERROR(
      SumRange(dtype, pending->copies, pending->slice.first, {&own, 1}, 0, pending->slice.count));
  return MpiStatus(MPI_Iallreduce(MPI_IN_PLACE, own, static_cast<int>(pending->slice.count),
                                  MpiType(dtype), MPI_SUM, lane_comm_, &pending->request),
                   "MPI_Iallreduce");
}

Status MpiCommunicator::FinishLane(PendingReduce* pending, MutableBuffer out, bool staged) {
  if (!pending->active) return Status::Ok();
  watch_->SetProgressRequest(nullptr);
  GACCD_RETURN_IF_ERROR(watch_->Finish(&pending->request));
  void* own = pending->copies[static_cast<std::size_t>(node_->rank())];
  if (lane_comm_ != MPI_COMM_NULL) {
    for (void* copy : pending->copies) {
      if (copy == own) continue;
      std::memcpy(At(copy, pending->slice.first, out.dtype),
                  At(own, pending->slice.first, out.dtype),
                  pending->slice.count * SizeOf(out.dtype));
    }
  }
  GACCD_RETURN_IF_ERROR(watch_->NodeBarrier());
  if (staged) {
    std::memcpy(At(out.data, pending->first, out.dtype), own, pending->count * SizeOf(out.dtype));
  }
  pending->active = false;
  return Status::Ok();
}

}  // namespace gaccd
