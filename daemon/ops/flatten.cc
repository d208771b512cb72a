#include "daemon/ops/flatten.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

class Reshape : public Function {
 public:
  explicit Reshape(Shape shape) : shape_(std::move(shape)) {}
  [[nodiscard]] std::string_view name() const override { return "reshape"; }
  [[nodiscard]] Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override {
    return std::vector<ValueSpec>{{shape_, inputs[0].dtype}};
  }
  [[nodiscard]] bool is_view() const override { return true; }

 private:
  Shape shape_;
};

}  // namespace

Result<std::vector<ValueSpec>> Flatten::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  const Shape& shape = inputs[0].shape;
  if (shape.empty()) {
    return Status(ErrorKind::kConfig, "expected a batch dimension, found a scalar");
  }
  const std::int64_t width = Elements(Shape(shape.begin() + 1, shape.end()));
  return std::vector<ValueSpec>{{{shape[0], width}, inputs[0].dtype}};
}

Status Flatten::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<Reshape>(scope.input_shape(0)),
                                {scope.OutputGradient(0)});
}

}  // namespace gaccd
