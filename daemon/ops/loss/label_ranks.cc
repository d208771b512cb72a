#include "daemon/ops/loss/label_ranks.h"

#include <cmath>

#include "daemon/ops/call_kernel.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

struct RankAndBest {
  std::int32_t rank;
  std::int32_t best;
};

RankAndBest RankLabel(const float* z, std::int32_t classes, std::int32_t label) {
  const bool is_class = label >= 0 && label < classes;
  const float at_label = is_class ? z[label] : 0.0F;
  std::int32_t before = 0;
  std::int32_t best = 0;
  for (std::int32_t c = 0; c < classes; ++c) {
    if (std::isnan(z[c])) return {classes, -1};
    if (z[c] > z[best]) best = c;
    if (z[c] > at_label || (z[c] == at_label && c < label)) ++before;
  }
  return {is_class ? before : classes, best};
}

}  // namespace

OutputSpecs LabelRanks::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the logits"));
  const Shape rows = {inputs[0].shape[0]};
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], rows, "the labels", DType::kI32));
  return std::vector<ValueSpec>{{rows, DType::kI32}, {rows, DType::kI32}};
}

KernelResult MakeLabelRanksCpu(const KernelRequest& request) {
  const std::int64_t rows = request.inputs[0].shape[0];
  const auto classes = static_cast<std::int32_t>(request.inputs[0].shape[1]);
  return MakeCall(request, [=](const CallKernel::Call& call) {
    for (std::int64_t m = 0; m < rows; ++m) {
      const RankAndBest found =
          RankLabel(call.in<float>(0) + m * classes, classes, call.in<std::int32_t>(1)[m]);
      call.out<std::int32_t>(0)[m] = found.rank;
      call.out<std::int32_t>(1)[m] = found.best;
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
