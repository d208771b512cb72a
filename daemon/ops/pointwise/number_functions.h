// Elementwise functions of a value and one or two constants:
//   affine       y = a x + b;  dx = a dy
//   power        y = x^a;  dx = a x^(a - 1) dy
//   hardsigmoid  y = min(max(x + 3, 0), 6) / 6;  dx = dy / 6 within (-3, 3), else 0
//   clamp        y = min(max(x, a), b);  dx = dy within [a, b], else 0
//   hardtanh     as clamp, but dx is 0 at a and b: as PyTorch's hardtanh and relu6
//   leaky_relu   y = x where x > 0, else a x;  dx = dy, or a dy; a NaN stays NaN
//   exp, log     dx = dy y, dy / x
//   expm1, log1p exp(x) - 1 and log(1 + x), exact near 0;  dx = dy exp(x), dy / (1 + x)
//   softplus     y = log(1 + exp(x));  dx = dy / (1 + exp(-x))
//   root         y = sqrt(x);  dx = dy / (2 y), and 0 where x = 0: for norms of vectors
//   sin, cos     dx = dy cos(x), -dy sin(x)
//   erf, erfc    erfc = 1 - erf;  dx = 2 / sqrt(pi) exp(-x^2) dy, and its negative
//   floor        the largest integer that is not above x;  dx = 0
//   equal, less  y = 1 where x = a, or x < a, else 0;  dx = 0
// Types f32, bf16 and fp16. For token ids:
//   ids_to_numbers  i32 -> f32, and numbers_to_ids, f32 -> i32: exact below 2^24, no gradients
//   skip_id         an i32 equal to a becomes -1, which has no gradient (embedding.h)
//   known_positions tokens i32 [B, T], optional lengths i32 [B] -> i32 [B, T]: 1 before the length
//                   of the text, else 0; 1 without lengths
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"
#include "daemon/ops/pointwise/number_formulas.h"

namespace gaccd {

class NumberFunction : public Function {
 public:
  explicit NumberFunction(NumberKind kind, double a = 0, double b = 0)
      : kind_(kind), a_(static_cast<float>(a)), b_(static_cast<float>(b)) {}

  [[nodiscard]] std::string_view name() const override { return "number_function"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] NumberKind kind() const { return kind_; }
  [[nodiscard]] NumberPair numbers() const { return {a_, b_}; }

 private:
  NumberKind kind_;
  float a_;
  float b_;
};

// Inputs: dy, x.
class NumberFunctionGradient : public Function {
 public:
  NumberFunctionGradient(NumberKind kind, NumberPair numbers) : kind_(kind), numbers_(numbers) {}

  [[nodiscard]] std::string_view name() const override { return "number_function_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] NumberKind kind() const { return kind_; }
  [[nodiscard]] NumberPair numbers() const { return numbers_; }

 private:
  NumberKind kind_;
  NumberPair numbers_;
};

enum class IdFunctionKind : std::uint8_t { kIdsToNumbers, kNumbersToIds, kSkipId, kKnownPositions };

class IdFunction : public Function {
 public:
  explicit IdFunction(IdFunctionKind kind, std::int32_t id = 0) : kind_(kind), id_(id) {}

  // "ids_to_numbers", "numbers_to_ids", "skip_id", "known_positions".
  [[nodiscard]] std::string_view name() const override;
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;

  [[nodiscard]] std::int32_t id() const { return id_; }

 private:
  IdFunctionKind kind_;
  std::int32_t id_;
};

CpuMake MakeNumberFunctionCpu, MakeNumberFunctionGradientCpu, MakeIdsToNumbersCpu,
    MakeNumbersToIdsCpu, MakeSkipIdCpu, MakeKnownPositionsCpu;
CudaMake MakeNumberFunctionCuda, MakeNumberFunctionGradientCuda, MakeIdsToNumbersCuda,
    MakeNumbersToIdsCuda, MakeSkipIdCuda, MakeKnownPositionsCuda;
inline constexpr FunctionRow kNumberFunctionRows[] = {
    {"number_function", MakeNumberFunctionCpu, MakeNumberFunctionCuda},
    {"number_function_gradient", MakeNumberFunctionGradientCpu, MakeNumberFunctionGradientCuda},
    {"ids_to_numbers", MakeIdsToNumbersCpu, MakeIdsToNumbersCuda},
    {"numbers_to_ids", MakeNumbersToIdsCpu, MakeNumbersToIdsCuda},
    {"skip_id", MakeSkipIdCpu, MakeSkipIdCuda},
    {"known_positions", MakeKnownPositionsCpu, MakeKnownPositionsCuda},
};

}  // namespace gaccd
