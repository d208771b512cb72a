// Gather, scatter and broadcast inside one node, piece by piece through staging memory. For each
// piece: write the own staging half, barrier, read the other halves. mpi_communicator.h explains
// why two halves and one barrier per piece suffice.

#include <algorithm>
#include <cstring>

#include "collectives/comm/checks.h"
#include "collectives/comm/mpi_communicator.h"
#include "collectives/comm/sum.h"

namespace gaccd {

namespace {

// The intersection of piece [first, first + step) and [begin, end).
struct Intersection {
  std::size_t begin = 0;
  std::size_t count = 0;
};
Intersection Intersect(std::size_t first, std::size_t step, std::size_t begin, std::size_t end) {
  const std::size_t from = std::max(first, begin);
  const std::size_t to = std::min(first + step, end);
  return {from, to > from ? to - from : 0};
}

}  // namespace

Status MpiCommunicator::GatherOnNode(ConstBuffer in, std::span<const std::int64_t> counts,
                                     MutableBuffer out, std::int64_t place) {
  const std::size_t width = SizeOf(in.dtype);
  const std::size_t step = StagedElements(in.dtype);
  const auto longest = static_cast<std::size_t>(*std::ranges::max_element(counts));
  const auto* from = static_cast<const std::byte*>(in.data);
  auto* to = static_cast<std::byte*>(out.data);
  GACCD_RETURN_IF_ERROR(watch_->BarrierAndCheck());
  if (watch_->SamePlace()) {
    std::byte* const own = to + PartOffset(counts, rank_) * width;
    if (in.count > 0 && own != from) std::memcpy(own, from, in.bytes());
    return GatherInPlace(place, counts, in.dtype);
  }
  for (std::size_t first = 0; first < longest; first += step) {
    const std::size_t half = NextHalf();
    const Intersection own = Intersect(first, step, 0, in.count);
    if (own.count > 0) {
      std::memcpy(node_->staging(node_->rank(), half), from + own.begin * width, own.count * width);
    }
    GACCD_RETURN_IF_ERROR(watch_->NodeBarrier());
    for (int r = 0; r < size_; ++r) {
      const auto rows = static_cast<std::size_t>(counts[static_cast<std::size_t>(r)]);
      const Intersection part = Intersect(first, step, 0, rows);
      if (part.count == 0) continue;
      std::memcpy(to + (PartOffset(counts, r) + part.begin) * width, node_->staging(r, half),
                  part.count * width);
    }
  }
  return Status::Ok();
}

// All ranks are in this operation, so data that they read before may be overwritten; each rank
// writes its part to all others while it is in its cache.
Status MpiCommunicator::GatherInPlace(std::int64_t place, std::span<const std::int64_t> counts,
                                      DType dtype) {
  const std::size_t begin = PartOffset(counts, rank_) * SizeOf(dtype);
  const std::size_t bytes =
      static_cast<std::size_t>(counts[static_cast<std::size_t>(rank_)]) * SizeOf(dtype);
  const auto* own = static_cast<const std::byte*>(node_->AtPlace(place, node_->rank())) + begin;
  for (int i = 0; i < node_->size() && bytes > 0; ++i) {
    if (i == node_->rank()) continue;
    std::memcpy(static_cast<std::byte*>(node_->AtPlace(place, i)) + begin, own, bytes);
  }
  return watch_->NodeBarrier();
}

Status MpiCommunicator::ScatterOnNode(ConstBuffer in, std::span<const std::int64_t> counts,
                                      MutableBuffer out, std::int64_t place) {
  const std::size_t width = SizeOf(in.dtype);
  const std::size_t step = StagedElements(in.dtype);
  const std::size_t begin = PartOffset(counts, rank_);
  const auto* from = static_cast<const std::byte*>(in.data);
  auto* to = static_cast<std::byte*>(out.data);
  GACCD_RETURN_IF_ERROR(watch_->BarrierAndCheck());
  if (watch_->SamePlace()) return ScatterInPlace(place, begin, out);
  for (std::size_t first = 0; first < in.count; first += step) {
    const std::size_t half = NextHalf();
    const Intersection piece = Intersect(first, step, 0, in.count);
    std::memcpy(node_->staging(node_->rank(), half), from + first * width, piece.count * width);
    GACCD_RETURN_IF_ERROR(watch_->NodeBarrier());
    const Intersection own = Intersect(first, step, begin, begin + out.count);
    if (own.count == 0) continue;
    void* const sum = to + (own.begin - begin) * width;
    GACCD_RETURN_IF_ERROR(
        SumRange(in.dtype, NodeStaging(half), own.begin - first, {&sum, 1}, 0, own.count));
  }
  return Status::Ok();
}

// The data of all ranks is visible and complete. No other rank accesses this rank's part of any
// input, so `out` may alias one of them.
Status MpiCommunicator::ScatterInPlace(std::int64_t place, std::size_t begin, MutableBuffer out) {
  for (int i = 0; i < node_->size(); ++i) {
    copies_[static_cast<std::size_t>(i)] = node_->AtPlace(place, i);
  }
  if (out.count > 0) {
    GACCD_RETURN_IF_ERROR(SumRange(out.dtype, copies_, begin, {&out.data, 1}, 0, out.count));
  }
  return watch_->NodeBarrier();
}

Status MpiCommunicator::BroadcastOnNode(MutableBuffer buffer, int root) {
  const std::size_t width = SizeOf(buffer.dtype);
  const std::size_t step = StagedElements(buffer.dtype);
  auto* data = static_cast<std::byte*>(buffer.data);
  GACCD_RETURN_IF_ERROR(watch_->BarrierAndCheck());
  for (std::size_t first = 0; first < buffer.count; first += step) {
    const std::size_t half = NextHalf();
    const std::size_t bytes = std::min(step, buffer.count - first) * width;
    std::byte* shared = node_->staging(root, half);
    if (rank_ == root) std::memcpy(shared, data + first * width, bytes);
    GACCD_RETURN_IF_ERROR(watch_->NodeBarrier());
    if (rank_ != root) std::memcpy(data + first * width, shared, bytes);
  }
  return Status::Ok();
}

// Gather, scatter and broadcast between nodes by non-blocking MPI collectives. MPI counts and
// displacements are ints, so buffers are sent in pieces of at most `segment_` elements; pieces of a
// gather or scatter are packed, because their parts are far apart in the whole buffer.

namespace {

// The parts of all ranks in one piece: at most `step` elements each, contiguous.
struct Piece {
  std::vector<int> counts;
  std::vector<int> offsets;
  std::size_t total = 0;
};

Piece PieceAt(std::span<const std::int64_t> counts, std::int64_t first, std::int64_t step) {
  Piece piece;
  for (std::int64_t count : counts) {
    const auto part = static_cast<int>(std::clamp<std::int64_t>(count - first, 0, step));
    piece.counts.push_back(part);
    piece.offsets.push_back(static_cast<int>(piece.total));
    piece.total += static_cast<std::size_t>(part);
  }
  return piece;
}

}  // namespace

Status MpiCommunicator::GatherAcross(ConstBuffer in, std::span<const std::int64_t> counts,
                                     MutableBuffer out) {
  const std::size_t width = SizeOf(in.dtype);
  const std::size_t step = std::max<std::size_t>(1, segment_ / counts.size());
  const auto longest = static_cast<std::size_t>(*std::ranges::max_element(counts));
  const auto* from = static_cast<const std::byte*>(in.data);
  auto* to = static_cast<std::byte*>(out.data);
  packed_.resize(step * counts.size() * width);
  for (std::size_t first = 0; first < longest; first += step) {
    const Piece piece =
        PieceAt(counts, static_cast<std::int64_t>(first), static_cast<std::int64_t>(step));
    const int own = piece.counts[static_cast<std::size_t>(rank_)];
    MPI_Request request = MPI_REQUEST_NULL;
    GACCD_RETURN_IF_ERROR(
        Finish(MPI_Iallgatherv(own > 0 ? from + first * width : nullptr, own, MpiType(in.dtype),
                               packed_.data(), piece.counts.data(), piece.offsets.data(),
                               MpiType(in.dtype), comm_, &request),
               &request, "MPI_Iallgatherv"));
    for (std::size_t r = 0; r < counts.size(); ++r) {
      const auto part = static_cast<std::size_t>(piece.counts[r]);
      if (part == 0) continue;
      std::memcpy(to + (PartOffset(counts, static_cast<int>(r)) + first) * width,
                  packed_.data() + static_cast<std::size_t>(piece.offsets[r]) * width,
                  part * width);
    }
  }
  return Status::Ok();
}

Status MpiCommunicator::ScatterAcross(ConstBuffer in, std::span<const std::int64_t> counts,
                                      MutableBuffer out) {
  if (in.dtype == DType::kBF16) {
    std::vector<float> wide(in.count);
    std::vector<float> sum(out.count);
    WidenBf16({static_cast<const std::uint16_t*>(in.data), in.count}, wide);
    GACCD_RETURN_IF_ERROR(ScatterAcross(View(std::span(wide)), counts, View(std::span(sum))));
    NarrowBf16(sum, {static_cast<std::uint16_t*>(out.data), out.count});
    return Status::Ok();
  }
  const std::size_t width = SizeOf(in.dtype);
  const std::size_t step = std::max<std::size_t>(1, segment_ / counts.size());
  const auto longest = static_cast<std::size_t>(*std::ranges::max_element(counts));
  const auto* from = static_cast<const std::byte*>(in.data);
  auto* to = static_cast<std::byte*>(out.data);
  packed_.resize(step * counts.size() * width);
  for (std::size_t first = 0; first < longest; first += step) {
    const Piece piece =
        PieceAt(counts, static_cast<std::int64_t>(first), static_cast<std::int64_t>(step));
    for (std::size_t r = 0; r < counts.size(); ++r) {
      const auto part = static_cast<std::size_t>(piece.counts[r]);
      if (part == 0) continue;
      std::memcpy(packed_.data() + static_cast<std::size_t>(piece.offsets[r]) * width,
                  from + (PartOffset(counts, static_cast<int>(r)) + first) * width, part * width);
    }
    const bool receives = piece.counts[static_cast<std::size_t>(rank_)] > 0;
    MPI_Request request = MPI_REQUEST_NULL;
    GACCD_RETURN_IF_ERROR(Finish(
        MPI_Ireduce_scatter(packed_.data(), receives ? to + first * width : nullptr,
                            piece.counts.data(), MpiType(in.dtype), MPI_SUM, comm_, &request),
        &request, "MPI_Ireduce_scatter"));
  }
  return Status::Ok();
}

Status MpiCommunicator::BroadcastAcross(MutableBuffer buffer, int root) {
  const std::size_t width = SizeOf(buffer.dtype);
  auto* data = static_cast<std::byte*>(buffer.data);
  for (std::size_t first = 0; first < buffer.count; first += segment_) {
    const auto count = static_cast<int>(std::min(segment_, buffer.count - first));
    MPI_Request request = MPI_REQUEST_NULL;
    GACCD_RETURN_IF_ERROR(Finish(
        MPI_Ibcast(data + first * width, count, MpiType(buffer.dtype), root, comm_, &request),
        &request, "MPI_Ibcast"));
  }
  return Status::Ok();
}

}  // namespace gaccd
