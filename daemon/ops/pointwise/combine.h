// Functions of two values with broadcasting, and sums over dimensions, as in PyTorch.
//   combine_add, combine_multiply, combine_divide  y = a + b, a b, a / b: a size of 1 is repeated
//       da = dy, dy b, or dy / b, summed over the dimensions in which a is repeated; db likewise,
//       and -dy y / b for a quotient
//   combine_select(a, b)  y = a where b is not 0, else 0, whatever a is there; da is dy likewise,
//       db = 0. where(b, a, c) is the sum of two.
//   reduce_sum(x, [factor])  y = sum of x, or of x factor, over the dimensions of size 1 in y
// Sums are in f64, rounded once.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"
#include "daemon/ops/strided_nest.h"
#include "daemon/tensor/shape.h"

namespace gaccd {

enum class CombineKind : std::uint8_t { kAdd, kMultiply, kDivide, kSelect };

// Inputs: a and b with the same number of dimensions. Each is f32, or both are bf16 or both fp16,
// or one is f32. Output: of their type, of the 16-bit type if they differ.
class Combine : public Function {
 public:
  explicit Combine(CombineKind kind) : kind_(kind) {}

  // "combine_add", "combine_multiply", "combine_divide", "combine_select".
  [[nodiscard]] std::string_view name() const override;
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] CombineKind kind() const { return kind_; }

 private:
  Status RecordSelectGradient(GradientScope& scope) const;
  Status RecordDivideGradient(GradientScope& scope) const;

  CombineKind kind_;
};

// Inputs: x and, with the same number of dimensions, factor, whose sizes are those of x or 1.
// Output: of the given shape, whose sizes are those of x or 1, and the given type: of x, f32, or
// f64 for a loss.
class ReduceSum : public Function {
 public:
  ReduceSum(Shape to, DType dtype) : to_(std::move(to)), dtype_(dtype) {}

  [[nodiscard]] std::string_view name() const override { return "reduce_sum"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;  // only for x, without a factor
  [[nodiscard]] bool can_accumulate(std::size_t) const override { return dtype_ == DType::kF32; }

 private:
  Shape to_;
  DType dtype_;
};

CpuMake MakeCombineCpu, MakeReduceSumCpu;
CudaMake MakeCombineCuda, MakeReduceSumCuda;
inline constexpr FunctionRow kCombineRows[] = {
    {"combine_add", MakeCombineCpu, MakeCombineCuda},
    {"combine_multiply", MakeCombineCpu, MakeCombineCuda},
    {"combine_divide", MakeCombineCpu, MakeCombineCuda},
    {"combine_select", MakeCombineCpu, MakeCombineCuda},
    {"reduce_sum", MakeReduceSumCpu, MakeReduceSumCuda},
};

// Iteration order of the kernels of combine.h.

// Elements from one index to the next; 0 in dimensions of size 1.
[[nodiscard]] inline Shape BroadcastSteps(const Shape& shape) {
  Shape steps(shape.size(), 0);
  std::int64_t elements = 1;
  for (std::size_t d = shape.size(); d-- > 0; elements *= shape[d]) {
    if (shape[d] != 1) steps[d] = elements;
  }
  return steps;
}

// Over y; operands a, b and y. REQUIRES: shapes of the same rank.
[[nodiscard]] inline StridedNest CombineNest(const Shape& a, const Shape& b, const Shape& y) {
  const Shape of_a = BroadcastSteps(a);
  const Shape of_b = BroadcastSteps(b);
  const Shape of_y = BroadcastSteps(y);
  StridedNest nest;
  for (std::size_t d = 0; d < y.size(); ++d) nest.Add(y[d], of_a[d], of_b[d], of_y[d]);
  return nest;
}

// Nests over the elements of y, and for each of them over the elements of x that it sums; operands
// x, factor and y.
struct SumNests {
  StridedNest kept;
  StridedNest summed;
};
[[nodiscard]] inline SumNests MakeSumNests(const Shape& x, const Shape& factor, const Shape& y) {
  const Shape of_x = BroadcastSteps(x);
  const Shape of_factor = BroadcastSteps(factor);
  const Shape of_y = BroadcastSteps(y);
  SumNests nests;
  for (std::size_t d = 0; d < y.size(); ++d) {
    StridedNest& nest = y[d] == x[d] ? nests.kept : nests.summed;
    nest.Add(x[d], of_x[d], of_factor[d], of_y[d]);
  }
  return nests;
}

}  // namespace gaccd
