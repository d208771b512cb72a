// The kernels of linear_gelu.h on the GPU: one cuBLASLt product, whose GELU uses tanh; or a product
// and a separate kernel: in f32, if cuBLASLt does not support it (reported in the notes), or if
// that is faster.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/device/cuda/matmul_timing.h"
#include "daemon/ops/product/linear_cuda.h"
#include "daemon/ops/product/linear_gelu.h"

namespace gaccd {
namespace {

constexpr auto kGeluTanh = ActivationKind::kGeluTanh;

// Forward or backward: outputs[0] = f(inputs[0] W), with `aux` an output, an input or unused.
class GeluProduct : public Kernel {
 public:
  GeluProduct(std::unique_ptr<MatmulCuda> matmul, const CudaContext& context,
              const MatmulCudaSpec& spec)
      : matmul_(std::move(matmul)), context_(context), spec_(spec) {}

  void Bind(const Operands& operands) override { bound_ = BindOperands(operands); }
  Status Run(OutputMask) override {
    GACCD_RETURN_IF_ERROR(bound_);
    return matmul_->Run();
  }

 private:
  Status BindOperands(const Operands& operands) {
    const auto parameter = [&](std::size_t i) {
      return ParameterAs(context_, operands.inputs[i], spec_.ab);
    };
    const void* bias = nullptr;
    void* aux = nullptr;
    GACCD_ASSIGN_OR_RETURN(const void* w, parameter(1));
    if (spec_.bias) {
      GACCD_ASSIGN_OR_RETURN(bias, parameter(2));
    }
    if (spec_.gelu == MatmulGelu::kKeep) aux = operands.outputs[1];
    if (spec_.gelu == MatmulGelu::kGradient) aux = operands.inputs[2];
    return matmul_->Bind(operands.inputs[0], w, bias, operands.outputs[0], nullptr, aux);
  }

  std::unique_ptr<MatmulCuda> matmul_;
  const CudaContext& context_;
  MatmulCudaSpec spec_;
  Status bound_;
};

// Enqueues the activation, or its gradient at `pre`, in place or from `in` to `out`.
Status EnqueueGelu(const KernelStream& on, const MatmulCudaSpec& spec, const void* in,
                   const void* pre, void* out) {
  const std::int64_t elements = spec.m * spec.n;
  if (spec.gelu == MatmulGelu::kGradient) {
    return EnqueueActivationGradient(on, kGeluTanh, spec.c, in, pre, out, elements);
  }
  return EnqueueActivation(on, kGeluTanh, spec.c, in, out, elements);
}

// The same with the kernel of linear or linear_input_gradient, and a GELU kernel.
class SeparateGelu : public Kernel {
 public:
  SeparateGelu(std::unique_ptr<Kernel> product, const KernelStream& on, const MatmulCudaSpec& spec)
      : product_(std::move(product)), on_(on), spec_(spec) {}

  [[nodiscard]] std::int64_t scratch_bytes() const override { return product_->scratch_bytes(); }
  void Bind(const Operands& operands) override {
    const bool gradient = spec_.gelu == MatmulGelu::kGradient;
    pre_ = gradient ? operands.inputs[2] : nullptr;
    result_ = operands.outputs[0];
    product_result_ = operands.outputs[spec_.gelu == MatmulGelu::kKeep ? 1 : 0];
    product_->Bind({.inputs = gradient ? operands.inputs.first(2) : operands.inputs,
                    .outputs = {&product_result_, 1},
                    .scratch = operands.scratch});
  }
  Status Run(OutputMask add) override {
    GACCD_RETURN_IF_ERROR(product_->Run(add));
    return EnqueueGelu(on_, spec_, product_result_, pre_, result_);
  }

 private:
  std::unique_ptr<Kernel> product_;
  KernelStream on_;
  MatmulCudaSpec spec_;
  const void* pre_ = nullptr;
  void* product_result_ = nullptr;
  void* result_ = nullptr;
};

// Time of the GELU kernel in microseconds.
Result<double> TimeGelu(const KernelStream& on, const MatmulCudaSpec& spec) {
  const std::size_t bytes = static_cast<std::size_t>(spec.m * spec.n) * SizeOf(spec.c);
  const auto allocate = [&] { return DeviceBuffer::Allocate(bytes, "timing GELU"); };
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer in, allocate());
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer out, allocate());
  GACCD_RETURN_IF_ERROR(FillRandom(in, spec.c));
  GACCD_RETURN_IF_ERROR(FillRandom(out, spec.c));
  const auto enqueue = [&] { return EnqueueGelu(on, spec, out.data(), in.data(), out.data()); };
  GACCD_RETURN_IF_ERROR(enqueue());
  const Result<double> taken = TimeWork(on.stream, enqueue);
  (void)cudaStreamSynchronize(on.stream);  // before the memory is freed, also after an error
  return taken;
}

// product: makes the kernel of the product alone.
template <typename MakeProduct>
KernelResult Make(const CudaRequest& request, const MatmulCudaSpec& plain, MatmulGelu gelu,
                  MatmulCuda::Pass pass, const MakeProduct& product) {
  MatmulCudaSpec spec = plain;
  spec.gelu = gelu;
  const auto separate = [&]() -> KernelResult {
    GACCD_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, product());
    return MakeKernel<SeparateGelu>(std::move(kernel), request.on, spec);
  };
  if (spec.c == DType::kF32) return separate();  // the library's tanh has an error of 1e-5
  GACCD_ASSIGN_OR_RETURN(std::unique_ptr<MatmulCuda> matmul,
                         MatmulCuda::TryPrepare(request.context, spec, pass));
  if (matmul == nullptr) {
    const std::string note =
        StrCat("cuBLASLt cannot run the ", ToText(spec), ": GELU is done by a kernel of its own");
    // One note for all layers.
    if (std::ranges::find(request.notes, note) == request.notes.end()) {
      request.notes.push_back(note);
    }
    return separate();
  }
  if (IsTimed(request.context.numerics())) {
    GACCD_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> other, separate());
    GACCD_ASSIGN_OR_RETURN(
        const std::optional<bool> faster,
        IsEpilogueFaster(request.context, spec, plain, [&] { return TimeGelu(request.on, spec); }));
    if (!faster.value_or(true)) return other;
  }
  return MakeKernel<GeluProduct>(std::move(matmul), request.context, spec);
}

}  // namespace

KernelResult MakeLinearGeluTanhCuda(const CudaRequest& request) {
  const auto& function = static_cast<const LinearGeluTanh&>(request.function);
  return Make(
      request, LinearSpec(request, function.linear().order()),
      function.keeps() ? MatmulGelu::kKeep : MatmulGelu::kApply, MatmulCuda::Pass::kForward, [&] {
        return MakeLinearCuda(
            {{function.linear(), request.inputs, request.outputs.first(1), request.parameters},
             request.context,
             request.on,
             request.notes,
             request.comm});
      });
}

KernelResult MakeLinearGeluTanhInputGradientCuda(const CudaRequest& request) {
  const auto& function = static_cast<const LinearGeluTanhInputGradient&>(request.function);
  return Make(request, LinearInputGradientSpec(request, function.linear().order()),
              MatmulGelu::kGradient, MatmulCuda::Pass::kBackward, [&] {
                return MakeLinearInputGradientCuda({{function.linear(), request.inputs.first(2),
                                                     request.outputs, request.parameters.first(2)},
                                                    request.context,
                                                    request.on,
                                                    request.notes,
                                                    request.comm});
              });
}

}  // namespace gaccd
