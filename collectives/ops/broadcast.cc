#include "collectives/ops/broadcast.h"

#include "collectives/ops/local.h"

namespace gaccd::collectives {

Status Broadcast::Forward(ConstBuffer x, MutableBuffer y, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(CheckApart("Broadcast forward", x, y));
  GACCD_RETURN_IF_ERROR(
      CheckElements("Broadcast forward", "y", static_cast<std::int64_t>(x.count), y.count));
  if (comm_->rank() == root_) Copy(x, y);
  return comm_->Broadcast(y, root_, stream);
}

Status Broadcast::Backward(ConstBuffer dy, MutableBuffer dx, StreamHandle stream) {
  const auto elements = static_cast<std::int64_t>(dy.count);
  GACCD_RETURN_IF_ERROR(CheckApart("Broadcast backward", dy, dx));
  GACCD_RETURN_IF_ERROR(CheckElements("Broadcast backward", "dx", elements, dx.count));
  const bool is_root = comm_->rank() == root_;
  if (!is_root) Zero(dx);
  if (convention_ == GradConvention::kReplicatedLoss) {
    if (is_root) Copy(dy, dx);
    return Status::Ok();
  }
  // A reduction to one rank is a reduce-scatter that gives everything to it.
  counts_[static_cast<std::size_t>(root_)] = elements;
  MutableBuffer sum = dx;
  if (!is_root) sum.count = 0;
  return comm_->ReduceScatter(dy, counts_, sum, stream);
}

}  // namespace gaccd::collectives
