#include "collectives/comm/communicator.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "collectives/comm/checks.h"
#include "collectives/comm/traffic.h"

namespace gaccd {
namespace {

// On a device, empty operations are not enqueued; on the host they are still barriers.
bool IsNothing(const ConstBuffer& all) { return all.memory != MemoryKind::kHost && all.count == 0; }

}  // namespace

template <typename Traffic>
Status Communicator::Count(Status done, const Traffic& traffic) {
  if (done.ok() && size() > 1) {
    const CommTraffic added = traffic();
    traffic_->sent += added.sent;
    traffic_->between_nodes += added.between_nodes;
  }
  return done;
}

Status Communicator::AllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status right = CheckAllReduce(in, out, KindFor(in.memory));
  if (!right.ok()) return Refuse(std::move(right));
  if (IsNothing(in)) return Status::Ok();
  return Count(DoAllReduceSum(in, out, stream),
               [&] { return AllReduceTraffic(topology(), rank(), in.count, in.dtype); });
}

Status Communicator::AllReduceSums(std::span<const MutableBuffer> buffers, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  for (const MutableBuffer& buffer : buffers) {
    Status right = CheckAllReduce(buffer, buffer, KindFor(buffers.front().memory));
    if (!right.ok()) return Refuse(std::move(right));
  }
  if (std::ranges::all_of(buffers, IsNothing)) return Status::Ok();
  return Count(DoAllReduceSums(buffers, stream), [&] {
    CommTraffic all;
    for (const MutableBuffer& buffer : buffers) {
      all += AllReduceTraffic(topology(), rank(), buffer.count, buffer.dtype);
    }
    return all;
  });
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
  if (IsNothing(out)) return Status::Ok();
  return Count(DoAllGather(in, counts, out, stream),
               [&] { return AllGatherTraffic(topology(), in); });
}

Status Communicator::ReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts,
                                   MutableBuffer out, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status right = CheckReduceScatter(in, counts, out, rank(), size(), KindFor(in.memory));
  if (!right.ok()) return Refuse(std::move(right));
  if (IsNothing(in)) return Status::Ok();
  return Count(DoReduceScatter(in, counts, out, stream),
               [&] { return ReduceScatterTraffic(topology(), rank(), counts, in.dtype); });
}

Status Communicator::Broadcast(MutableBuffer buffer, int root, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status right = CheckBroadcast(buffer, root, size(), KindFor(buffer.memory));
  if (!right.ok()) return Refuse(std::move(right));
  if (IsNothing(buffer)) return Status::Ok();
  return Count(DoBroadcast(buffer, root, stream),
               [&] { return BroadcastTraffic(topology(), rank(), root, buffer); });
}

Status Communicator::Send(ConstBuffer message, int to, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status right = CheckMessage("send", message, KindFor(message.memory), to, rank(), size());
  if (!right.ok()) return Refuse(std::move(right));
  if (IsNothing(message)) return Status::Ok();
  return Count(DoSend(message, to, stream),
               [&] { return SendTraffic(topology(), rank(), to, message); });
}

Status Communicator::Receive(MutableBuffer message, int from, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status right = CheckMessage("receive", message, KindFor(message.memory), from, rank(), size());
  if (!right.ok()) return Refuse(std::move(right));
  return IsNothing(message) ? Status::Ok() : DoReceive(message, from, stream);
}

Status Communicator::DoSend(ConstBuffer /*message*/, int /*to*/, StreamHandle /*stream*/) {
  return {ErrorKind::kInternal, StrCat(name(), ": has no messages between two ranks")};
}

Status Communicator::DoReceive(MutableBuffer /*message*/, int /*from*/, StreamHandle /*stream*/) {
  return {ErrorKind::kInternal, StrCat(name(), ": has no messages between two ranks")};
}

}  // namespace gaccd
