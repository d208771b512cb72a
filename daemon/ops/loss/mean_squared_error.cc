#include "daemon/ops/loss/mean_squared_error.h"

#include "daemon/ops/call_kernel.h"
#include "daemon/ops/fuse.h"
#include "daemon/ops/pointwise/elementwise.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs MeanSquaredError::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the prediction"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], inputs[0].shape, "the target"));
  return std::vector<ValueSpec>{{{1}, DType::kF64}};
}

Status MeanSquaredError::Gradient(GradientScope& scope) const {
  if (scope.NeedsGradient(1)) {
    return {ErrorKind::kConfig,
            "mean_squared_error: the target has no gradient, found a value "
            "that needs one"};
  }
  return scope.SetInputGradient(0, std::make_shared<MeanSquaredErrorGradient>(),
                                {scope.input(0), scope.input(1), scope.OutputGradient(0)});
}

OutputSpecs MeanSquaredErrorGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 3));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the prediction"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], inputs[0].shape, "the target"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {1}, "the loss gradient"));
  return std::vector<ValueSpec>{inputs[0]};
}

OutputSpecs MeanSquaredErrorFused::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs, MeanSquaredErrorGradient().Infer(inputs));
  outputs.push_back({{1}, DType::kF64});
  return outputs;
}

void FuseMeanSquaredError(Fuser& fuser) {
  for (std::size_t i = 0; i < fuser.size(); ++i) {
    if (!fuser.Is<MeanSquaredError>(i)) continue;
    const Node& loss = fuser.node(i);
    const auto j = fuser.Find<MeanSquaredErrorGradient>([&loss](const Node& gradient) {
      return gradient.inputs[0] == loss.inputs[0] && gradient.inputs[1] == loss.inputs[1];
    });
    if (!j || !fuser.ComputedBefore(fuser.node(*j).inputs[2], i)) continue;
    fuser.Replace(i, {std::make_shared<MeanSquaredErrorFused>(),
                      {loss.inputs[0], loss.inputs[1], fuser.node(*j).inputs[2]},
                      {fuser.node(*j).outputs[0], loss.outputs[0]}});
    fuser.Erase(*j);
  }
}

KernelResult MakeMeanSquaredErrorCpu(const KernelRequest& request) {
  const Shape& shape = request.inputs[0].shape;
  return MakeCall(request,
                  [elements = Elements(shape), columns = shape[1]](const CallKernel::Call& c) {
                    double sum = 0;
                    for (std::int64_t i = 0; i < elements; ++i) {
                      sum += SquaredError(c.in<float>(0)[i], c.in<float>(1)[i]);
                    }
                    *c.out<double>(0) = sum / static_cast<double>(columns);
                    return Status::Ok();
                  });
}

KernelResult MakeMeanSquaredErrorGradientCpu(const KernelRequest& request) {
  const Shape& shape = request.inputs[0].shape;
  return MakeCall(request,
                  [elements = Elements(shape), columns = shape[1]](const CallKernel::Call& c) {
                    const auto* y = c.in<float>(0);
                    const auto* t = c.in<float>(1);
                    auto* dy = c.out<float>(0);
                    const float slope = SquaredErrorSlope(*c.in<float>(2), columns);
                    for (std::int64_t i = 0; i < elements; ++i)
                      dy[i] = SquaredErrorGradient(slope, y[i], t[i]);
                    return Status::Ok();
                  });
}

}  // namespace gaccd
