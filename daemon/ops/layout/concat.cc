#include "daemon/ops/layout/concat.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/layout/rearrange.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs Concat::Infer(std::span<const ValueSpec> inputs) const {
  if (inputs.empty()) GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  std::int64_t columns = 0;
  for (const ValueSpec& input : inputs) {
    GACCD_RETURN_IF_ERROR(CheckMatrix(input, "the input", inputs[0].dtype));
    GACCD_RETURN_IF_ERROR(CheckFloat(input, "the input"));
    if (input.shape[0] != inputs[0].shape[0]) {
      return Status(ErrorKind::kConfig,
                    StrCat("expected matrices of as many rows, found ", ToString(inputs[0].shape),
                           " and ", ToString(input.shape)));
    }
    columns += input.shape[1];
  }
  return std::vector<ValueSpec>{{{inputs[0].shape[0], columns}, inputs[0].dtype}};
}

Status Concat::Gradient(GradientScope& scope) const {
  const Shape all = scope.graph().value(scope.output(0)).spec.shape;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < scope.inputs(); ++i) {
    const std::int64_t columns = scope.input_shape(i)[1];
    if (scope.NeedsGradient(i)) {
      const Rearrangement part{
          .from = all,
          .to = {{.size = all[0], .source = 0}, {.size = columns, .source = 1, .start = first}}};
      GACCD_RETURN_IF_ERROR(
          scope.SetInputGradient(i, std::make_shared<Rearrange>(part), {scope.OutputGradient(0)}));
    }
    first += columns;
  }
  return Status::Ok();
}

KernelResult MakeConcatCpu(const KernelRequest& request) {
  Shape columns;
  for (const ValueSpec& input : request.inputs) columns.push_back(input.shape[1]);
  return MakeCall(request,
                  [columns, rows = request.outputs[0].shape[0]](const CallKernel::Call& c) {
                    auto* y = c.out<float>(0);
                    for (std::int64_t n = 0; n < rows; ++n) {
                      for (std::size_t i = 0; i < columns.size(); ++i) {
                        y = std::copy_n(c.in<float>(i) + n * columns[i], columns[i], y);
                      }
                    }
                    return Status::Ok();
                  });
}

}  // namespace gaccd
