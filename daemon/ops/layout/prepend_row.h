// Prepends a row to each of B sequences, or drops it. Each function is the gradient of the other.
//   prepend_row     x [B T, D], row f32 [1, D] -> y [B (T + 1), D]
//                   y[b (T + 1)] = row, or 0 without one;  y[b (T + 1) + 1 + t] = x[b T + t]
//                   drow = sum of dy[b (T + 1)] over b, in order
//   drop_first_row  x [B T, D] -> y [B (T - 1), D];  y[b (T - 1) + t] = x[b T + 1 + t]
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

// Inputs: x f32, bf16 or fp16 and optionally row (default 0).
class PrependRow : public Function {
 public:
  explicit PrependRow(std::int64_t length) : length_(length) {}

  [[nodiscard]] std::string_view name() const override { return "prepend_row"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] std::int64_t length() const { return length_; }

 private:
  std::int64_t length_;  // T of the input
};

// Input: x f32, bf16 or fp16, T at least 2.
class DropFirstRow : public Function {
 public:
  explicit DropFirstRow(std::int64_t length) : length_(length) {}

  [[nodiscard]] std::string_view name() const override { return "drop_first_row"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] std::int64_t length() const { return length_; }

 private:
  std::int64_t length_;  // T of the input
};

CpuMake MakePrependRowCpu, MakeDropFirstRowCpu;
CudaMake MakePrependRowCuda, MakeDropFirstRowCuda;
inline constexpr FunctionRow kPrependRowRows[] = {
    {"prepend_row", MakePrependRowCpu, MakePrependRowCuda},
    {"drop_first_row", MakeDropFirstRowCpu, MakeDropFirstRowCuda},
};

}  // namespace gaccd
