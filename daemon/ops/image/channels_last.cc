#include "daemon/ops/image/channels_last.h"

#include <algorithm>

#include "daemon/ops/call_kernel.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Transposes each matrix [rows, columns] to [columns, rows], in tiles that fit the L1 cache.
void TransposeEach(const float* from, std::int64_t matrices, std::int64_t rows,
                   std::int64_t columns, float* to) {
  constexpr std::int64_t kTile = 32;
  for (std::int64_t m = 0; m < matrices; ++m, from += rows * columns, to += rows * columns) {
    for (std::int64_t i = 0; i < rows; i += kTile) {
      const std::int64_t last_row = std::min(i + kTile, rows);
      for (std::int64_t j = 0; j < columns; ++j) {
        for (std::int64_t k = i; k < last_row; ++k) to[j * rows + k] = from[k * columns + j];
      }
    }
  }
}

KernelResult MakeTransposition(const KernelRequest& request, std::int64_t rows,
                               std::int64_t columns) {
  return MakeCall(request, [=, images = request.inputs[0].shape[0]](const Call& c) {
    TransposeEach(c.in<float>(0), images, rows, columns, c.out<float>(0));
    return Status::Ok();
  });
}

}  // namespace

OutputSpecs ChannelsLast::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckImages(inputs[0], "the input"));
  const Shape& x = inputs[0].shape;
  return std::vector<ValueSpec>{{{x[0], x[2], x[3], x[1]}, inputs[0].dtype}};
}

Status ChannelsLast::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<ChannelsFirst>(), {scope.OutputGradient(0)});
}

OutputSpecs ChannelsFirst::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckImages(inputs[0], "the input"));
  const Shape& x = inputs[0].shape;
  return std::vector<ValueSpec>{{{x[0], x[3], x[1], x[2]}, inputs[0].dtype}};
}

Status ChannelsFirst::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<ChannelsLast>(), {scope.OutputGradient(0)});
}

KernelResult MakeChannelsLastCpu(const KernelRequest& request) {
  const Shape& x = request.inputs[0].shape;
  return MakeTransposition(request, x[1], x[2] * x[3]);
}

KernelResult MakeChannelsFirstCpu(const KernelRequest& request) {
  const Shape& x = request.inputs[0].shape;
  return MakeTransposition(request, x[1] * x[2], x[3]);
}

}  // namespace gaccd
