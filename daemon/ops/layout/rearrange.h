// Rearrange: permutes dimensions of x, selects a part of it, or repeats it.
//   rearrange(x)  y[i] = x[j]; the dimension d of y with the source s: j[s] = start + step i[d];
//       dimensions of y without a source repeat
//   rearrange_gradient(dy)  dx[j] = sum of dy[i] over all i that read x[j]; 0 if there are none
//   rearrange_gradient_add(sum, dy)  sum + that: if a value is read in many parts, each of them
//       only writes its own elements
// The first two are the gradients of each other. Sums of repeated elements are in the order of y.
#pragma once

#include <vector>

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"
#include "daemon/ops/strided_nest.h"

namespace gaccd {

struct Rearrangement {
  struct Dimension {
    std::int64_t size = 1;
    int source = -1;  // a dimension of `from`; -1: none
    std::int64_t start = 0;
    std::int64_t step = 1;  // may be negative
  };
  Shape from;                 // x is interpreted with this shape
  std::vector<Dimension> to;  // each dimension of `from` is the source of exactly one
};

// Input: x f32, bf16, fp16 or i32, with as many elements as `from`.
class Rearrange : public Function {
 public:
  explicit Rearrange(Rearrangement order) : order_(std::move(order)) {}

  [[nodiscard]] std::string_view name() const override { return "rearrange"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] const Rearrangement& order() const { return order_; }

 private:
  Rearrangement order_;
};

// Input: dy f32, bf16 or fp16, with the shape of y. Output: with the shape `x`.
class RearrangeGradient : public Function {
 public:
  RearrangeGradient(Rearrangement order, Shape x) : order_(std::move(order)), x_(std::move(x)) {}

  [[nodiscard]] std::string_view name() const override { return "rearrange_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] const Rearrangement& order() const { return order_; }

 private:
  Rearrangement order_;
  Shape x_;
};

// Inputs: sum, with the shape and type of x, and dy. No dimension of y repeats.
class RearrangeGradientAdd : public Function {
 public:
  explicit RearrangeGradientAdd(Rearrangement order) : order_(std::move(order)) {}

  [[nodiscard]] std::string_view name() const override { return "rearrange_gradient_add"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] const Rearrangement& order() const { return order_; }

 private:
  Rearrangement order_;
};

CpuMake MakeRearrangeCpu, MakeRearrangeGradientCpu, MakeRearrangeGradientAddCpu;
CudaMake MakeRearrangeCuda, MakeRearrangeGradientCuda, MakeRearrangeGradientAddCuda;
inline constexpr FunctionRow kRearrangeRows[] = {
    {"rearrange", MakeRearrangeCpu, MakeRearrangeCuda},
    {"rearrange_gradient", MakeRearrangeGradientCpu, MakeRearrangeGradientCuda},
    {"rearrange_gradient_add", MakeRearrangeGradientAddCpu, MakeRearrangeGradientAddCuda},
};

// Iteration order of the kernels of rearrange.h.

// Operand 0 is x, from `first` on, operand 1 is y. Elements are in the order of y; with
// `repeats_outside`, repeating dimensions are outermost.
struct RearrangeNest {
  StridedNest nest;
  std::int64_t first = 0;
};

[[nodiscard]] inline RearrangeNest MakeNest(const Rearrangement& order, bool repeats_outside) {
  Shape steps(order.from.size());
  std::int64_t elements = 1;
  for (std::size_t s = steps.size(); s-- > 0; elements *= order.from[s]) steps[s] = elements;
  Shape places(order.to.size());
  elements = 1;
  for (std::size_t d = places.size(); d-- > 0; elements *= order.to[d].size) places[d] = elements;
  RearrangeNest made;
  for (const bool repeats : {true, false}) {
    for (std::size_t d = 0; d < places.size(); ++d) {
      const Rearrangement::Dimension& one = order.to[d];
      if (repeats_outside ? (one.source < 0) != repeats : repeats) continue;
      const std::int64_t step = one.source < 0 ? 0 : steps[static_cast<std::size_t>(one.source)];
      made.first += one.start * step;
      made.nest.Add(one.size, one.step * step, places[d]);
    }
  }
  return made;
}

}  // namespace gaccd
