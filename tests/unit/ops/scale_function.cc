#include "tests/unit/ops/scale_function.h"

#include <vector>

namespace gaccd {
namespace {

// Inputs: dy, x, gain. Outputs: dx, dgain, dshift.
class ScaleGradient : public Function {
 public:
  explicit ScaleGradient(bool accumulate) : accumulate_(accumulate) {}
  [[nodiscard]] std::string_view name() const override { return "test_scale_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override {
    return std::vector<ValueSpec>{inputs[1], inputs[2], inputs[2]};
  }
  [[nodiscard]] bool can_accumulate(std::size_t) const override { return accumulate_; }

 private:
  bool accumulate_;
};

class ScaleKernel : public Kernel {
 public:
  explicit ScaleKernel(const Shape& shape) : rows_(shape[0]), columns_(shape[1]) {}
  void Bind(const Operands& operands) override {
    x_ = operands.in<float>(0);
    gain_ = operands.in<float>(1);
    shift_ = operands.in<float>(2);
    y_ = operands.out<float>(0);
  }
  Status Run(OutputMask) override {
    for (std::int64_t i = 0; i < rows_ * columns_; ++i) {
      y_[i] = x_[i] * gain_[i % columns_] + shift_[i % columns_];
    }
    return Status::Ok();
  }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  const float* x_ = nullptr;
  const float* gain_ = nullptr;
  const float* shift_ = nullptr;
  float* y_ = nullptr;
};

class ScaleGradientKernel : public Kernel {
 public:
  explicit ScaleGradientKernel(const Shape& shape) : rows_(shape[0]), columns_(shape[1]) {}
  void Bind(const Operands& operands) override {
    inputs_ = {operands.in<float>(0), operands.in<float>(1), operands.in<float>(2)};
    outputs_ = {operands.out<float>(0), operands.out<float>(1), operands.out<float>(2)};
  }
  Status Run(OutputMask add) override {
    const auto elements = static_cast<std::size_t>(rows_ * columns_);
    const auto columns = static_cast<std::size_t>(columns_);
    std::vector<float> sums[3] = {std::vector<float>(elements), std::vector<float>(columns),
                                  std::vector<float>(columns)};
    for (std::size_t i = 0; i < elements; ++i) {
      const std::size_t n = i % columns;
      const float dy = inputs_[0][i];
      sums[0][i] = dy * inputs_[2][n];
      sums[1][n] += dy * inputs_[1][i];
      sums[2][n] += dy;
    }
    for (std::size_t output = 3; output-- > 0;) {  // a kernel may write them in any order
      for (std::size_t i = 0; i < sums[output].size(); ++i) {
        float& target = outputs_[output][i];
        target = add[output] ? target + sums[output][i] : sums[output][i];
      }
    }
    return Status::Ok();
  }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  std::vector<const float*> inputs_;
  std::vector<float*> outputs_;
};

}  // namespace

Status Scale::Gradient(GradientScope& scope) const {
  constexpr std::size_t kAll[] = {0, 1, 2};
  return scope.SetInputGradients(kAll, std::make_shared<ScaleGradient>(accumulate_),
                                 {scope.OutputGradient(0), scope.input(0), scope.input(1)});
}

std::unique_ptr<Kernel> MakeScaleKernel(const KernelRequest& request) {
  const Shape& x = request.outputs[0].shape;
  if (request.function.name() == "test_scale") return std::make_unique<ScaleKernel>(x);
  if (request.function.name() == "test_scale_gradient") {
    return std::make_unique<ScaleGradientKernel>(x);
  }
  return nullptr;
}

}  // namespace gaccd
