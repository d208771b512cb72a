// Functions of two values with broadcasting, and sums over dimensions, as in PyTorch.
//   combine_add, combine_multiply  y = a + b, y = a b: a size of 1 is repeated
//       da = dy, or dy b, summed over the dimensions in which a is repeated; db likewise
//   combine_select(a, b)  y = a where b is not 0, else 0, whatever a is there; da is dy likewise,
//       db = 0. where(b, a, c) is the sum of two.
//   reduce_sum(x, [factor])  y = sum of x, or of x factor, over the dimensions of size 1 in y
// Sums are in f64, rounded once.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

enum class CombineKind : std::uint8_t { kAdd, kMultiply, kSelect };

// Inputs: a and b with the same number of dimensions. Each is f32, or both are bf16 or both fp16,
// or one is f32. Output: of their type, of the 16-bit type if they differ.
class Combine : public Function {
 public:
  explicit Combine(CombineKind kind) : kind_(kind) {}

  // "combine_add", "combine_multiply", "combine_select".
  [[nodiscard]] std::string_view name() const override;
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] CombineKind kind() const { return kind_; }

 private:
  Status RecordSelectGradient(GradientScope& scope) const;

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
    {"combine_select", MakeCombineCpu, MakeCombineCuda},
    {"reduce_sum", MakeReduceSumCpu, MakeReduceSumCuda},
};

}  // namespace gaccd
