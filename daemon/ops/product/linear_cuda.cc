// The kernels of linear.h on the GPU. Where cuBLASLt cannot add bias and ReLU, or sums of columns,
// in a product's own pass, a kernel of its own does it, and a line of the notes says so. It also
// does the sums where it is faster.
#include "daemon/ops/product/linear_cuda.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/fill_random.h"
#include "daemon/device/cuda/matmul_fusion.h"
#include "daemon/device/cuda/time_work.h"

namespace gaccd {
namespace {

using MatmulPointer = std::unique_ptr<MatmulCuda>;
constexpr auto kBackward = MatmulCuda::Pass::kBackward;

// y = x W^T + b (inputs x, W, b), or dx = dy W (inputs dy, W): the second operand is a parameter.
class ParameterProduct : public Kernel {
 public:
  ParameterProduct(MatmulPointer matmul, const CudaContext& context, DType dtype)
      : matmul_(std::move(matmul)), context_(context), dtype_(dtype) {}

  void Bind(const Operands& operands) override { bound_ = BindOperands(operands); }
  Status Run(OutputMask) override {
    GACCD_RETURN_IF_ERROR(bound_);
    return matmul_->Run();
  }

 private:
  Status BindOperands(const Operands& operands) {
    void* const bias = operands.inputs.size() > 2 ? operands.inputs[2] : nullptr;
    GACCD_ASSIGN_OR_RETURN(const void* w, ParameterAs(context_, operands.inputs[1], dtype_));
    GACCD_ASSIGN_OR_RETURN(const void* b, ParameterAs(context_, bias, dtype_));
    return matmul_->Bind(operands.inputs[0], w, b, operands.outputs[0], nullptr);
  }

  MatmulPointer matmul_;
  const CudaContext& context_;
  DType dtype_;
  Status bound_;
};

// y = x W^T + b, then ReLU, where the product itself can do neither.
class SeparateBiasKernel : public Kernel {
 public:
  SeparateBiasKernel(MatmulPointer matmul, const CudaContext& context, const KernelStream& on,
                     DType dtype, Matrix size, bool relu)
      : matmul_(std::move(matmul)),
        context_(context),
        on_(on),
        dtype_(dtype),
        size_(size),
        relu_(relu) {}

  void Bind(const Operands& operands) override { bound_ = BindOperands(operands); }
  Status Run(OutputMask) override {
    GACCD_RETURN_IF_ERROR(bound_);
    GACCD_RETURN_IF_ERROR(matmul_->Run());
    if (bias_ != nullptr) return EnqueueAddBias(on_, dtype_, bias_, y_, size_, relu_);
    return relu_ ? EnqueueRelu(on_, dtype_, y_, y_, size_.rows * size_.row_stride()) : Status::Ok();
  }

 private:
  Status BindOperands(const Operands& operands) {
    void* const bias = operands.inputs.size() > 2 ? operands.inputs[2] : nullptr;
    GACCD_ASSIGN_OR_RETURN(const void* w, ParameterAs(context_, operands.inputs[1], dtype_));
    GACCD_ASSIGN_OR_RETURN(bias_, ParameterAs(context_, bias, dtype_));
    y_ = operands.outputs[0];
    return matmul_->Bind(operands.inputs[0], w, nullptr, y_, nullptr);
  }

  MatmulPointer matmul_;
  const CudaContext& context_;
  KernelStream on_;
  DType dtype_;
  Matrix size_;
  bool relu_;
  const void* bias_ = nullptr;
  void* y_ = nullptr;
  Status bound_;
};

// dW = dy^T x, or dW += dy^T x: two products, one of which adds.
class WeightGradientKernel : public Kernel {
 public:
  WeightGradientKernel(MatmulPointer overwrite, MatmulPointer add)
      : overwrite_(std::move(overwrite)), add_(std::move(add)) {}

  void Bind(const Operands& operands) override {
    bound_ = BindOne(*overwrite_, operands);
    if (bound_.ok()) bound_ = BindOne(*add_, operands);
  }
  Status Run(OutputMask add) override {
    GACCD_RETURN_IF_ERROR(bound_);
    return (add[0] ? add_ : overwrite_)->Run();
  }

 private:
  static Status BindOne(MatmulCuda& matmul, const Operands& operands) {
    return matmul.Bind(operands.inputs[0], operands.inputs[1], nullptr, operands.outputs[0],
                       nullptr);
  }

  MatmulPointer overwrite_;
  MatmulPointer add_;
  Status bound_;
};

// The same with db in the same pass. The library can only overwrite db: `overwrite` does, `add`
// leaves the sums in scratch memory.
class WeightBiasGradientKernel : public Kernel {
 public:
  WeightBiasGradientKernel(MatmulPointer overwrite, MatmulPointer add, const KernelStream& on,
                           std::int64_t columns)
      : overwrite_(std::move(overwrite)), add_(std::move(add)), on_(on), columns_(columns) {}

  [[nodiscard]] std::int64_t scratch_bytes() const override {
    return columns_ * static_cast<std::int64_t>(sizeof(float));
  }
  void Bind(const Operands& operands) override {
    db_ = operands.out<float>(1);
    sums_ = static_cast<float*>(operands.scratch);
    bound_ = BindOne(*overwrite_, operands, db_);
    if (bound_.ok()) bound_ = BindOne(*add_, operands, sums_);
  }
  Status Run(OutputMask add) override {
    GACCD_RETURN_IF_ERROR(bound_);
    if (add[0]) {
      GACCD_RETURN_IF_ERROR(add_->Run());
    } else {
      if (!add[1]) return overwrite_->Run();
      GACCD_RETURN_IF_ERROR(EnqueueAccumulate(on_, DType::kF32, db_, sums_, columns_, false));
      GACCD_RETURN_IF_ERROR(overwrite_->Run());
    }
    return EnqueueAccumulate(on_, DType::kF32, sums_, db_, columns_, add[1]);
  }

 private:
  static Status BindOne(MatmulCuda& matmul, const Operands& operands, float* sums) {
    return matmul.Bind(operands.inputs[0], operands.inputs[1], nullptr, operands.outputs[0], sums);
  }

  MatmulPointer overwrite_;
  MatmulPointer add_;
  KernelStream on_;
  std::int64_t columns_;
  float* db_ = nullptr;
  float* sums_ = nullptr;
  Status bound_;
};

// The same by a product and a kernel.
class SeparateBiasGradientKernel : public Kernel {
 public:
  SeparateBiasGradientKernel(std::unique_ptr<Kernel> weight, const KernelStream& on,
                             std::size_t place_of_dy, const ValueSpec& dy)
      : weight_(std::move(weight)),
        on_(on),
        place_of_dy_(place_of_dy),
        dtype_(dy.dtype),
        size_{dy.shape[0], dy.shape[1], dy.row_stride} {}

  [[nodiscard]] std::int64_t scratch_bytes() const override {
    return std::max(weight_->scratch_bytes(),
                    static_cast<std::int64_t>(BiasGradientScratchBytes(size_)));
  }
  void Bind(const Operands& operands) override {
    weight_->Bind(operands);
    dy_ = operands.inputs[place_of_dy_];
    db_ = operands.out<float>(1);
    scratch_ = operands.scratch;
  }
  Status Run(OutputMask add) override {
    GACCD_RETURN_IF_ERROR(weight_->Run(add));
    return EnqueueBiasGradient(on_, dtype_, dy_, size_, db_, add[1], scratch_);
  }

 private:
  std::unique_ptr<Kernel> weight_;
  KernelStream on_;
  std::size_t place_of_dy_;
  DType dtype_;
  Matrix size_;
  const void* dy_ = nullptr;
  float* db_ = nullptr;
  void* scratch_ = nullptr;
};

// Microseconds of the kernel.
Result<double> TimeBiasGradient(const KernelStream& on, const ValueSpec& dy) {
  const Matrix size{dy.shape[0], dy.shape[1], dy.row_stride};
  const auto allocate = [](std::size_t bytes) {
    return DeviceBuffer::Allocate(bytes, "timing a bias gradient");
  };
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer from, allocate(static_cast<std::size_t>(dy.bytes())));
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer sums,
                         allocate(static_cast<std::size_t>(size.columns) * sizeof(float)));
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer scratch, allocate(BiasGradientScratchBytes(size)));
  GACCD_RETURN_IF_ERROR(FillRandom(from, dy.dtype));
  const auto enqueue = [&] {
    return EnqueueBiasGradient(on, dy.dtype, from.data(), size, sums.as<float>(), true,
                               scratch.data());
  };
  GACCD_RETURN_IF_ERROR(enqueue());
  const Result<double> taken = TimeWork(on.stream, enqueue);
  (void)cudaStreamSynchronize(on.stream);  // before the memory goes, also after an error
  return taken;
}

MatmulCudaSpec WeightGradientSpec(const KernelRequest& request) {
  const ValueSpec& dy = request.inputs[0];
  const ValueSpec& x = request.inputs[1];
  return {.m = dy.shape[1],
          .n = x.shape[1],
          .k = dy.shape[0],
          .transpose_a = true,
          .ab = dy.dtype,
          .c = DType::kF32,
          .stride_a = dy.row_stride};
}

MatmulCudaSpec Adding(MatmulCudaSpec spec) {
  spec.accumulate = true;
  return spec;
}

}  // namespace

Result<const void*> ParameterAs(const CudaContext& context, const void* parameter, DType dtype) {
  if (dtype == DType::kF32 || parameter == nullptr) return parameter;
  const void* copy = context.HalfCopyOf(static_cast<const float*>(parameter));
  if (copy == nullptr) {
    return Status(ErrorKind::kInternal, StrCat("expected a copy in 16 bits of the parameter at ",
                                               parameter, ", found none"));
  }
  return copy;
}

MatmulCudaSpec LinearSpec(const CudaRequest& request, WeightOrder order) {
  const ValueSpec& x = request.inputs[0];
  return {.m = x.shape[0],
          .n = request.outputs[0].shape[1],
          .k = x.shape[1],
          .transpose_b = order == WeightOrder::kOutIn,
          .ab = x.dtype,
          .c = x.dtype,
          .bias = request.inputs.size() == 3,
          .stride_a = x.row_stride,
          .stride_c = request.outputs[0].row_stride};
}

MatmulCudaSpec LinearInputGradientSpec(const CudaRequest& request, WeightOrder order) {
  const ValueSpec& dy = request.inputs[0];
  return {.m = dy.shape[0],
          .n = request.outputs[0].shape[1],
          .k = dy.shape[1],
          .transpose_b = order == WeightOrder::kInOut,
          .ab = dy.dtype,
          .c = dy.dtype,
          .stride_a = dy.row_stride,
          .stride_c = request.outputs[0].row_stride};
}

KernelResult MakeLinearCuda(const CudaRequest& request) {
  const auto& linear = static_cast<const Linear&>(request.function);
  const bool relu = linear.relu();
  MatmulCudaSpec spec = LinearSpec(request, linear.order());
  spec.relu = relu;
  GACCD_ASSIGN_OR_RETURN(MatmulPointer matmul, MatmulCuda::TryPrepare(request.context, spec));
  if (matmul != nullptr) {
    return std::unique_ptr<Kernel>(
        std::make_unique<ParameterProduct>(std::move(matmul), request.context, spec.ab));
  }
  request.notes.push_back(StrCat("cuBLASLt cannot run the ", ToText(spec),
                                 ": bias and ReLU are done by a kernel of its own"));
  spec.bias = spec.relu = false;
  GACCD_ASSIGN_OR_RETURN(matmul, MatmulCuda::Prepare(request.context, spec));
  return std::unique_ptr<Kernel>(
      std::make_unique<SeparateBiasKernel>(std::move(matmul), request.context, request.on, spec.ab,
                                           Matrix{spec.m, spec.n, spec.stride_c}, relu));
}

KernelResult MakeLinearInputGradientCuda(const CudaRequest& request) {
  const WeightOrder order = static_cast<const LinearInputGradient&>(request.function).order();
  const MatmulCudaSpec spec = LinearInputGradientSpec(request, order);
  GACCD_ASSIGN_OR_RETURN(MatmulPointer matmul,
                         MatmulCuda::Prepare(request.context, spec, kBackward));
  return std::unique_ptr<Kernel>(
      std::make_unique<ParameterProduct>(std::move(matmul), request.context, spec.ab));
}

KernelResult MakeLinearWeightGradientCuda(const CudaRequest& request) {
  const MatmulCudaSpec spec = WeightGradientSpec(request);
  GACCD_ASSIGN_OR_RETURN(MatmulPointer overwrite,
                         MatmulCuda::Prepare(request.context, spec, kBackward));
  GACCD_ASSIGN_OR_RETURN(MatmulPointer add,
                         MatmulCuda::Prepare(request.context, Adding(spec), kBackward));
  return std::unique_ptr<Kernel>(
      std::make_unique<WeightGradientKernel>(std::move(overwrite), std::move(add)));
}

KernelResult MakeLinearWeightBiasGradientCuda(const CudaRequest& request) {
  const std::size_t place =
      static_cast<const LinearWeightBiasGradient&>(request.function).place_of_dy();
  const ValueSpec& dy = request.inputs[place];
  const auto separate = [&]() -> KernelResult {
    GACCD_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> weight, MakeLinearWeightGradientCuda(request));
    return std::unique_ptr<Kernel>(
        std::make_unique<SeparateBiasGradientKernel>(std::move(weight), request.on, place, dy));
  };
  const MatmulCudaSpec plain = WeightGradientSpec(request);
  MatmulCudaSpec spec = plain;
  (place == 0 ? spec.column_sums : spec.column_sums_of_b) = true;
  const bool timed = IsTimed(request.context.numerics());
  if (!timed && !FillsTheGpu(request.context, spec)) return separate();
  GACCD_ASSIGN_OR_RETURN(MatmulPointer overwrite,
                         MatmulCuda::TryPrepare(request.context, spec, kBackward));
  GACCD_ASSIGN_OR_RETURN(MatmulPointer add,
                         MatmulCuda::TryPrepare(request.context, Adding(spec), kBackward));
  if (overwrite == nullptr || add == nullptr) {
    request.notes.push_back(StrCat("cuBLASLt has no bias gradient with the weight gradient [",
                                   spec.m, ", ", spec.n, "] from ", spec.k, " rows of ",
                                   Name(spec.ab), ": done by a kernel of its own"));
    return separate();
  }
  if (timed) {
    GACCD_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> other, separate());
    GACCD_ASSIGN_OR_RETURN(const std::optional<bool> faster,
                           IsEpilogueFaster(request.context, spec, plain,
                                            [&] { return TimeBiasGradient(request.on, dy); }));
    if (!faster.value_or(FillsTheGpu(request.context, spec))) return other;
  }
  return std::unique_ptr<Kernel>(std::make_unique<WeightBiasGradientKernel>(
      std::move(overwrite), std::move(add), request.on, dy.shape[1]));
}

}  // namespace gaccd
