#include "collectives/ops/all_reduce_sum.h"

#include "collectives/ops/local.h"

namespace gaccd::collectives {

Status AllReduceSum::Forward(ConstBuffer x, MutableBuffer y, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(CheckApart("AllReduceSum forward", x, y));
  return comm_->AllReduceSum(x, y, stream);
}

Status AllReduceSum::Backward(ConstBuffer dy, MutableBuffer dx, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(CheckApart("AllReduceSum backward", dy, dx));
  if (convention_ == GradConvention::kPerRankLoss) return comm_->AllReduceSum(dy, dx, stream);
  GACCD_RETURN_IF_ERROR(
      CheckElements("AllReduceSum backward", "dx", static_cast<std::int64_t>(dy.count), dx.count));
  Copy(dy, dx);
  return Status::Ok();
}

}  // namespace gaccd::collectives
