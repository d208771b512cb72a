// Rotary: rotary position embedding as in Llama.  x [N, D], D even, rows of T positions; cos, sin
// f32 [T, D], constants.  With h = D / 2 and t the position of a row:
//   y[d]     = x[d] cos[t, d]         - x[d + h] sin[t, d]
//   y[d + h] = x[d + h] cos[t, d + h] + x[d] sin[t, d + h]
// Backward, the transposed operation:
//   dx[d]     = dy[d] cos[t, d]         + dy[d + h] sin[t, d + h]
//   dx[d + h] = dy[d + h] cos[t, d + h] - dy[d] sin[t, d]
// x and y are f32, bf16 or fp16.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

struct RotaryOptions {
  std::int64_t length = 1;  // T
  // rows of the same position are contiguous; row n has position (n / group) % T
  std::int64_t group = 1;
  bool transposed = false;
};

// Inputs: x, cos, sin. The gradient is the same function, transposed.
class Rotary : public Function {
 public:
  explicit Rotary(const RotaryOptions& options) : options_(options) {}

  [[nodiscard]] std::string_view name() const override { return "rotary"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] const RotaryOptions& options() const { return options_; }

 private:
  RotaryOptions options_;
};

CpuMake MakeRotaryCpu;
CudaMake MakeRotaryCuda;
inline constexpr FunctionRow kRotaryRows[] = {
    {"rotary", MakeRotaryCpu, MakeRotaryCuda},
};

}  // namespace gaccd
