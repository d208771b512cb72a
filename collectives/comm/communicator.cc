#include "collectives/comm/communicator.h"

#include <algorithm>

#include "collectives/comm/checks.h"

namespace gaccd {
namespace {

// On a device nothing is enqueued for nothing; on the host also such an operation is a barrier.
bool IsNothing(const ConstBuffer& all) { return all.memory != MemoryKind::kHost && all.count == 0; }

}  // namespace

Status Communicator::AllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status right = CheckAllReduce(in, out, KindFor(in.memory));
  if (!right.ok()) return Refuse(std::move(right));
  return IsNothing(in) ? Status::Ok() : DoAllReduceSum(in, out, stream);
}

Status Communicator::AllReduceSums(std::span<const MutableBuffer> buffers, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  for (const MutableBuffer& buffer : buffers) {
    Status right = CheckAllReduce(buffer, buffer, KindFor(buffers.front().memory));
    if (!right.ok()) return Refuse(std::move(right));
  }
  if (std::ranges::all_of(buffers, IsNothing)) return Status::Ok();
  return DoAllReduceSums(buffers, stream);
}

Status Communicator::DoAllReduceSums(std::span<const MutableBuffer> buffers, StreamHandle stream) {
  for (const MutableBuffer& buffer : buffers) {
    GACCD_RETURN_IF_ERROR(DoAllReduceSum(buffer, buffer, stream));
  }
  return Status::Ok();
}

Status Communicator::AllGather(ConstBuffer in, std::span<const std::int64_t> counts,
                               MutableBuffer out, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status right = CheckAllGather(in, counts, out, rank(), size(), KindFor(in.memory));
  if (!right.ok()) return Refuse(std::move(right));
  return IsNothing(out) ? Status::Ok() : DoAllGather(in, counts, out, stream);
}

Status Communicator::ReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts,
                                   MutableBuffer out, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status right = CheckReduceScatter(in, counts, out, rank(), size(), KindFor(in.memory));
  if (!right.ok()) return Refuse(std::move(right));
  return IsNothing(in) ? Status::Ok() : DoReduceScatter(in, counts, out, stream);
}

Status Communicator::Broadcast(MutableBuffer buffer, int root, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status right = CheckBroadcast(buffer, root, size(), KindFor(buffer.memory));
  if (!right.ok()) return Refuse(std::move(right));
  return IsNothing(buffer) ? Status::Ok() : DoBroadcast(buffer, root, stream);
}

}  // namespace gaccd
