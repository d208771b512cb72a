// Gated: y = f(a) b, elementwise, f an activation (activations.h): SwiGLU with silu, GEGLU with
// gelu, GLU with sigmoid.
//   da = dy b f'(a),  db = dy f(a)
// f(a) is not kept. a, b and y have the same shape and type, f32, bf16 or fp16; with `to_bf16` y is
// bf16 on the CPU.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"
#include "daemon/ops/pointwise/elementwise.h"

namespace gaccd {

// Inputs: a, b.
class Gated : public Function {
 public:
  explicit Gated(ActivationKind kind, bool to_bf16 = false) : kind_(kind), to_bf16_(to_bf16) {}

  [[nodiscard]] std::string_view name() const override { return "gated"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] ActivationKind kind() const { return kind_; }

 private:
  ActivationKind kind_;
  bool to_bf16_;
};

// Inputs: dy, a, b. Outputs: da, db.
class GatedGradient : public Function {
 public:
  explicit GatedGradient(ActivationKind kind) : kind_(kind) {}

  [[nodiscard]] std::string_view name() const override { return "gated_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;

  [[nodiscard]] ActivationKind kind() const { return kind_; }

 private:
  ActivationKind kind_;
};

struct GatedGradients {
  float da = 0;
  float db = 0;
};
template <typename Forward, typename Gradient>
GACCD_HOST_DEVICE inline GatedGradients GatedGradientsAt(float dy, float a, float b) {
  const float y = Forward::Apply(a);
  return {Gradient::Apply(dy * b, kGradientTakesOutput<Forward> ? y : a), dy * y};
}

CpuMake MakeGatedCpu, MakeGatedGradientCpu;
CudaMake MakeGatedCuda, MakeGatedGradientCuda;
inline constexpr FunctionRow kGatedRows[] = {
    {"gated", MakesBf16(MakeGatedCpu), MakeGatedCuda},
    {"gated_gradient", MakeGatedGradientCpu, MakeGatedGradientCuda},
};

}  // namespace gaccd
