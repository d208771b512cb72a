#include "collectives/ops/all_gather.h"

#include "collectives/ops/local.h"

namespace gaccd::collectives {

Status AllGather::Forward(ConstBuffer x, MutableBuffer y, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(CheckApart("AllGather forward", x, y));
  return comm_->AllGather(x, rows_.elements(), y, stream);
}

Status AllGather::Backward(ConstBuffer dy, MutableBuffer dx, StreamHandle stream) {
  constexpr std::string_view kName = "AllGather backward";
  GACCD_RETURN_IF_ERROR(CheckApart(kName, dy, dx));
  if (convention_ == GradConvention::kPerRankLoss) {
    return comm_->ReduceScatter(dy, rows_.elements(), dx, stream);
  }
  const int rank = comm_->rank();
  GACCD_RETURN_IF_ERROR(CheckElements(kName, "dy", rows_.total_elements(), dy.count));
  GACCD_RETURN_IF_ERROR(CheckElements(kName, "dx", rows_.elements_of(rank), dx.count));
  Copy(Part(dy, rows_.offset_of(rank), rows_.elements_of(rank)), dx);
  return Status::Ok();
}

}  // namespace gaccd::collectives
