// Scale: y[m][n] = x[m][n] gain[n] + shift[n]: a function for tests whose three gradients are given
// by one node.
#pragma once

#include <memory>

#include "daemon/autograd/function.h"
#include "daemon/autograd/kernel.h"

namespace gaccd {

class Scale : public Function {
 public:
  // accumulate: whether the kernel of the gradients can add to parameter gradients itself.
  explicit Scale(bool accumulate) : accumulate_(accumulate) {}
  [[nodiscard]] std::string_view name() const override { return "test_scale"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override {
    return std::vector<ValueSpec>{inputs[0]};
  }
  Status Gradient(GradientScope& scope) const override;

 private:
  bool accumulate_;
};

// The kernels of Scale and of its gradient; null for other functions.
std::unique_ptr<Kernel> MakeScaleKernel(const KernelRequest& request);

}  // namespace gaccd
