#include "daemon/ops/cuda_kernels.h"

#include <functional>
#include <map>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/ops/linear_cuda.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// What the makers know of a request. `dtype` and `size` are those of the first input.
struct Wanted {
  const KernelRequest& request;
  KernelStream on;
  DType dtype;
  std::int64_t elements;

  [[nodiscard]] Matrix size() const {
    return {request.inputs[0].shape[0], request.inputs[0].shape[1]};
  }
};

KernelResult Make(const Wanted& w, CallKernel::Action run, std::size_t scratch_bytes = 0) {
  return std::unique_ptr<Kernel>(
      std::make_unique<CallKernel>(w.request, std::move(run), scratch_bytes));
}

KernelResult MakeAccumulate(const Wanted& w) {
  return Make(w, [on = w.on, dtype = w.dtype, n = w.elements](const Call& c) {
    return EnqueueAccumulate(on, dtype, c.inputs[0], c.out<float>(0), n, c.add[0]);
  });
}

KernelResult MakeAdd(const Wanted& w) {
  return Make(w, [on = w.on, dtype = w.dtype, n = w.elements](const Call& c) {
    return EnqueueAdd(on, dtype, c.inputs[0], c.inputs[1], c.outputs[0], n);
  });
}

KernelResult MakeBiasGradient(const Wanted& w) {
  return Make(
      w,
      [on = w.on, dtype = w.dtype, size = w.size()](const Call& c) {
        return EnqueueBiasGradient(on, dtype, c.inputs[0], size, c.out<float>(0), c.add[0],
                                   c.scratch);
      },
      BiasGradientScratchBytes(w.size()));
}

KernelResult MakeCast(const Wanted& w) {
  return Make(
      w, [on = w.on, from = w.dtype, to = w.request.outputs[0].dtype, n = w.elements](
             const Call& c) { return EnqueueCast(on, from, c.inputs[0], to, c.outputs[0], n); });
}

KernelResult MakeCorrectCount(const Wanted& w) {
  return Make(w, [on = w.on, dtype = w.dtype, size = w.size()](const Call& c) {
    return EnqueueCorrectCount(on, dtype, c.inputs[0], c.in<std::int32_t>(1), size,
                               c.out<double>(0));
  });
}

KernelResult MakeMeanSquaredError(const Wanted& w) {
  return Make(w, [on = w.on, dtype = w.dtype, size = w.size()](const Call& c) {
    return EnqueueMeanSquaredError(on, dtype, c.inputs[0], c.in<float>(1), nullptr, size,
                                   c.out<double>(0), nullptr);
  });
}

KernelResult MakeMeanSquaredErrorFused(const Wanted& w) {
  return Make(w, [on = w.on, dtype = w.dtype, size = w.size()](const Call& c) {
    return EnqueueMeanSquaredError(on, dtype, c.inputs[0], c.in<float>(1), c.in<float>(2), size,
                                   c.out<double>(1), c.outputs[0]);
  });
}

KernelResult MakeMeanSquaredErrorGradient(const Wanted& w) {
  return Make(w, [on = w.on, dtype = w.dtype, size = w.size()](const Call& c) {
    return EnqueueMeanSquaredError(on, dtype, c.inputs[0], c.in<float>(1), c.in<float>(2), size,
                                   nullptr, c.outputs[0]);
  });
}

KernelResult MakeRelu(const Wanted& w) {
  return Make(w, [on = w.on, dtype = w.dtype, n = w.elements](const Call& c) {
    return EnqueueRelu(on, dtype, c.inputs[0], c.outputs[0], n);
  });
}

KernelResult MakeReluGradient(const Wanted& w) {
  return Make(w, [on = w.on, dtype = w.dtype, n = w.elements](const Call& c) {
    return EnqueueReluGradient(on, dtype, c.inputs[0], c.inputs[1], c.outputs[0], n);
  });
}

KernelResult MakeSoftmaxCrossEntropy(const Wanted& w) {
  return Make(w, [on = w.on, dtype = w.dtype, size = w.size()](const Call& c) {
    return EnqueueSoftmaxCrossEntropy(on, dtype, c.inputs[0], c.in<std::int32_t>(1), size,
                                      c.out<double>(0), c.outputs[1]);
  });
}

KernelResult MakeSoftmaxCrossEntropyLoss(const Wanted& w) {
  return Make(w, [on = w.on, dtype = w.dtype, size = w.size()](const Call& c) {
    return EnqueueSoftmaxCrossEntropy(on, dtype, c.inputs[0], c.in<std::int32_t>(1), size,
                                      c.out<double>(0), nullptr);
  });
}

KernelResult MakeSoftmaxCrossEntropyFused(const Wanted& w) {
  return Make(w, [on = w.on, dtype = w.dtype, size = w.size()](const Call& c) {
    return EnqueueSoftmaxCrossEntropyFused(on, dtype, c.inputs[0], c.in<std::int32_t>(1),
                                           c.in<float>(2), size, c.out<double>(1), c.outputs[0]);
  });
}

KernelResult MakeSoftmaxCrossEntropyGradient(const Wanted& w) {
  return Make(w, [on = w.on, dtype = w.dtype, size = w.size()](const Call& c) {
    return EnqueueSoftmaxCrossEntropyGradient(on, dtype, c.inputs[0], c.in<std::int32_t>(1),
                                              c.in<float>(2), size, c.outputs[0]);
  });
}

class CudaKernelFactory : public KernelFactory {
 public:
  CudaKernelFactory(CudaContext& context, std::vector<std::string>* notes)
      : context_(context), notes_(notes != nullptr ? notes : &unread_notes_) {
    const auto product = [this](auto make) {
      return [this, make](const Wanted& w) { return make(w.request, context_); };
    };
    makers_ = {
        {"accumulate", MakeAccumulate},
        {"add", MakeAdd},
        {"bias_gradient", MakeBiasGradient},
        {"cast", MakeCast},
        {"correct_count", MakeCorrectCount},
        {"linear",
         [this](const Wanted& w) { return MakeLinearCuda(w.request, context_, w.on, *notes_); }},
        {"linear_input_gradient", product(MakeLinearInputGradientCuda)},
        {"linear_weight_bias_gradient",
         [this](const Wanted& w) {
           return MakeLinearWeightBiasGradientCuda(w.request, context_, w.on, *notes_);
         }},
        {"linear_weight_gradient", product(MakeLinearWeightGradientCuda)},
        {"mean_squared_error", MakeMeanSquaredError},
        {"mean_squared_error_fused", MakeMeanSquaredErrorFused},
        {"mean_squared_error_gradient", MakeMeanSquaredErrorGradient},
        {"relu", MakeRelu},
        {"relu_gradient", MakeReluGradient},
        {"softmax_cross_entropy", MakeSoftmaxCrossEntropy},
        {"softmax_cross_entropy_fused", MakeSoftmaxCrossEntropyFused},
        {"softmax_cross_entropy_gradient", MakeSoftmaxCrossEntropyGradient},
        {"softmax_cross_entropy_loss", MakeSoftmaxCrossEntropyLoss},
    };
  }

  KernelResult Make(const KernelRequest& request) override {
    const std::string_view name = request.function.name();
    const auto maker = makers_.find(name);
    if (maker == makers_.end() || !HasCudaKernel(name)) {
      return Status(ErrorKind::kConfig, StrCat("'", name, "' has no kernel for the GPU"));
    }
    if (sums_.data() == nullptr) {
      GACCD_ASSIGN_OR_RETURN(sums_, DeviceBuffer::Allocate(GridSums::kBytes, "sums of losses"));
    }
    const KernelStream on{context_.compute(), context_.multiprocessors(),
                          GridSums::At(sums_.data())};
    return maker->second({request, on, request.inputs[0].dtype, Elements(request.inputs[0].shape)});
  }

 private:
  CudaContext& context_;
  std::vector<std::string> unread_notes_;
  std::vector<std::string>* notes_;
  // Of all losses: they run one after another, on the compute stream.
  DeviceBuffer sums_;
  std::map<std::string_view, std::function<KernelResult(const Wanted&)>> makers_;
};

}  // namespace

std::unique_ptr<KernelFactory> MakeCudaKernels(CudaContext& context,
                                               std::vector<std::string>* notes) {
  return std::make_unique<CudaKernelFactory>(context, notes);
}

}  // namespace gaccd
