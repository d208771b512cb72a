// CallKernel: a kernel that calls one function with its operands. MakeCall: makes one for a
// request.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/autograd/kernel.h"

namespace gaccd {

class CallKernel : public Kernel {
 public:
  // Arguments of a run: the operands as bound, in the node's order.
  struct Call {
    std::vector<void*> inputs;
    std::vector<void*> outputs;
    void* scratch = nullptr;
    OutputMask add;  // outputs to add to instead of overwriting them

    template <typename T>
    [[nodiscard]] const T* in(std::size_t i) const {
      return static_cast<const T*>(inputs[i]);
    }
    // Null if the node has no such input.
    template <typename T>
    [[nodiscard]] const T* optional_in(std::size_t i) const {
      return i < inputs.size() ? in<T>(i) : nullptr;
    }
    template <typename T>
    [[nodiscard]] T* out(std::size_t i) const {
      return static_cast<T*>(outputs[i]);
    }
  };
  using Action = std::function<Status(const Call&)>;

  // The number of operands is that of `request`.
  CallKernel(const KernelRequest& request, Action run, std::size_t scratch_bytes = 0)
      : run_(std::move(run)), scratch_bytes_(scratch_bytes) {
    call_.inputs.resize(request.inputs.size());
    call_.outputs.resize(request.outputs.size());
  }

  [[nodiscard]] std::int64_t scratch_bytes() const override {
    return static_cast<std::int64_t>(scratch_bytes_);
  }
  // If the number of operands differs from the request, Run() returns kInternal.
  void Bind(const Operands& operands) override {
    (void)(bound_ = CheckCounts(operands));  // nvcc considers the assignment an ignored Status
    if (!bound_.ok()) return;
    std::ranges::copy(operands.inputs, call_.inputs.begin());
    std::ranges::copy(operands.outputs, call_.outputs.begin());
    call_.scratch = operands.scratch;
  }
  Status Run(OutputMask add) override {
    GACCD_RETURN_IF_ERROR(bound_);
    call_.add = add;
    return run_(call_);
  }

 private:
  [[nodiscard]] Status CheckCounts(const Operands& operands) const {
    if (operands.inputs.size() == call_.inputs.size() &&
        operands.outputs.size() == call_.outputs.size()) {
      return Status::Ok();
    }
    return {ErrorKind::kInternal, StrCat("a kernel for ", call_.inputs.size(), " inputs and ",
                                         call_.outputs.size(), " outputs was bound to ",
                                         operands.inputs.size(), " and ", operands.outputs.size())};
  }

  Action run_;
  std::size_t scratch_bytes_;
  Call call_;
  Status bound_ = {ErrorKind::kInternal, "a kernel ran before it was bound"};
};

// A kernel of the class K.
template <typename K, typename... Arguments>
KernelResult MakeKernel(Arguments&&... arguments) {
  return std::unique_ptr<Kernel>(std::make_unique<K>(std::forward<Arguments>(arguments)...));
}

inline KernelResult MakeCall(const KernelRequest& request, CallKernel::Action run,
                             std::size_t scratch_bytes = 0) {
  return MakeKernel<CallKernel>(request, std::move(run), scratch_bytes);
}

}  // namespace gaccd
