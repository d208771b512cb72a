// Multiply: y = c x with a constant c; x f32 or f64, of any shape. dx = c dy. The worked example of
// README.md: the whole function is in this file, multiply.cc and multiply_cuda.cu.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

class Multiply : public Function {
 public:
  explicit Multiply(double factor) : factor_(factor) {}

  [[nodiscard]] std::string_view name() const override { return "multiply"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] double factor() const { return factor_; }

 private:
  double factor_;
};

CpuMake MakeMultiplyCpu;
CudaMake MakeMultiplyCuda;
inline constexpr FunctionRow kMultiplyRows[] = {
    {"multiply", MakeMultiplyCpu, MakeMultiplyCuda},
};

}  // namespace gaccd
