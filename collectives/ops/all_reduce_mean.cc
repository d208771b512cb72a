#include "collectives/ops/all_reduce_mean.h"

#include "collectives/base/strings.h"
#include "collectives/ops/local.h"

namespace gaccd::collectives {
namespace {

Status CheckCount(std::string_view operation, std::int64_t n) {
  if (n >= 1) return Status::Ok();
  return {ErrorKind::kInternal, StrCat(operation, ": expected a count of at least 1, found ", n)};
}

}  // namespace

Status AllReduceMean::Forward(ConstBuffer x, std::int64_t n, MutableBuffer y, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(CheckCount("AllReduceMean forward", n));
  GACCD_RETURN_IF_ERROR(CheckApart("AllReduceMean forward", x, y));
  GACCD_RETURN_IF_ERROR(comm_->AllReduceSum(x, y, stream));
  DivideBy(y, n);
  return Status::Ok();
}

Status AllReduceMean::Backward(ConstBuffer dy, std::int64_t n, MutableBuffer dx,
                               StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(CheckCount("AllReduceMean backward", n));
  GACCD_RETURN_IF_ERROR(CheckApart("AllReduceMean backward", dy, dx));
  if (convention_ == GradConvention::kPerRankLoss) {
    GACCD_RETURN_IF_ERROR(comm_->AllReduceSum(dy, dx, stream));
  } else {
    GACCD_RETURN_IF_ERROR(CheckElements("AllReduceMean backward", "dx",
                                        static_cast<std::int64_t>(dy.count), dx.count));
    Copy(dy, dx);
  }
  DivideBy(dx, n);
  return Status::Ok();
}

}  // namespace gaccd::collectives
