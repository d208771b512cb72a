#include "collectives/ops/reduce_scatter.h"

#include "collectives/ops/local.h"

namespace gaccd::collectives {

Status ReduceScatter::Forward(ConstBuffer x, MutableBuffer y, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(CheckApart("ReduceScatter forward", x, y));
  return comm_->ReduceScatter(x, rows_.elements(), y, stream);
}

Status ReduceScatter::Backward(ConstBuffer dy, MutableBuffer dx, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(CheckApart("ReduceScatter backward", dy, dx));
  return comm_->AllGather(dy, rows_.elements(), dx, stream);
}

}  // namespace gaccd::collectives
