// Kernel: one node, prepared for one device. Everything that can be decided before the run is
// decided at construction: a run has fixed operands and neither allocates nor looks anything up.
#pragma once

#include <bitset>
#include <cstddef>
#include <memory>
#include <span>

#include "daemon/autograd/graph.h"

namespace gaccd {

// Memory of the operands, in the node's order.
struct Operands {
  std::span<void* const> inputs;
  std::span<void* const> outputs;
  void* scratch = nullptr;  // at least Kernel::scratch_bytes(); not preserved between kernels

  template <typename T>
  [[nodiscard]] const T* in(std::size_t i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <typename T>
  [[nodiscard]] T* out(std::size_t i) const {
    return static_cast<T*>(outputs[i]);
  }
};

// A set of the outputs of a node: bit i is output i.
inline constexpr std::size_t kMaxOutputs = 16;
using OutputMask = std::bitset<kMaxOutputs>;

class Kernel {
 public:
  virtual ~Kernel() = default;

  [[nodiscard]] virtual std::int64_t scratch_bytes() const { return 0; }

  // Sets the addresses of the operands. Called before the first run, and again when an input moved.
  virtual void Bind(const Operands& operands) = 0;

  // add: the outputs to add to instead of overwriting them; only parameter gradients for which the
  // function can_accumulate().
  virtual Status Run(OutputMask add) = 0;
};

using KernelResult = Result<std::unique_ptr<Kernel>>;

// Arguments for making a kernel.
struct KernelRequest {
  const Function& function;
  std::span<const ValueSpec> inputs;
  std::span<const ValueSpec> outputs;
  // By input: its memory if it is a parameter (which never moves), otherwise null.
  std::span<const float* const> parameters;
};

// One per device; looks up kernels by the function's name. Must outlive its kernels.
class KernelFactory {
 public:
  virtual ~KernelFactory() = default;
  // kConfig, with function and device, if there is no such kernel.
  virtual KernelResult Make(const KernelRequest& request) = 0;
};

}  // namespace gaccd
