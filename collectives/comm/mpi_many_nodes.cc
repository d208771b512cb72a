// Gather, scatter and broadcast between nodes by non-blocking MPI collectives. MPI counts and
// displacements are ints, so buffers are sent in pieces of at most `segment_` elements; pieces of a
// gather or scatter are packed, because their parts are far apart in the whole buffer.
#include <algorithm>
#include <cstring>

#include "collectives/comm/checks.h"
#include "collectives/comm/mpi_communicator.h"

namespace gaccd {
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
