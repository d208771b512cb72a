// The kernels of linear.h on the GPU. If cuBLASLt does not support bias and ReLU or column sums as
// an epilogue, a separate kernel is used, and reported in the notes. It is also used for the sums
// if it is faster.
#include "daemon/ops/product/linear_cuda.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/device/cuda/matmul_timing.h"
#include "daemon/ops/cuda_kernels.h"

namespace gaccd {
namespace {

using MatmulPointer = std::unique_ptr<MatmulCuda>;
constexpr auto kBackward = MatmulCuda::Pass::kBackward;

// The inputs 1 and 2 of a product, a weight and an optional bias. If its rows are not a multiple of
// kRowsTogether, the weight [out, in] is padded with rows of zeros in scratch memory, if x W^T or
// dy has space for their columns (a stride). GPT-2's head on an H100: 95 TFLOP/s for 50257 columns,
// 620 for 50304.
class WeightAndBias {
 public:
  WeightAndBias(const CudaRequest& request, WeightOrder order, std::int64_t room)
      : context_(&request.context), stream_(request.on.stream), dtype_(request.dtype()) {
    const Shape& weight = request.inputs[1].shape;
    rows_ = weight[0];
    row_bytes_ = static_cast<std::size_t>(weight[1]) * SizeOf(dtype_);
    const std::int64_t padded = (rows_ + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
    if (order == WeightOrder::kOutIn && padded <= room) more_ = padded - rows_;
    has_bias_ = request.inputs.size() > 2;
  }

  // Adjusts the columns of y or dy, and their stride, in the product.
  void Widen(std::int64_t* columns, std::int64_t* stride) const {
    if (more_ == 0) return;
    *columns += more_;
    if (*stride == *columns) *stride = 0;
  }
  [[nodiscard]] std::int64_t scratch_bytes() const {
    if (more_ == 0) return 0;
    return static_cast<std::int64_t>(BiasPlace() +
                                     static_cast<std::size_t>(rows_ + more_) * SizeOf(dtype_));
  }

  Status Bind(const Operands& operands) {
    GACCD_ASSIGN_OR_RETURN(from_[0], ParameterAs(*context_, operands.inputs[1], dtype_));
    if (has_bias_) {
      GACCD_ASSIGN_OR_RETURN(from_[1], ParameterAs(*context_, operands.inputs[2], dtype_));
    }
    scratch_ = static_cast<std::byte*>(operands.scratch);
    return Status::Ok();
  }
  [[nodiscard]] const void* weight() const { return more_ == 0 ? from_[0] : scratch_; }
  [[nodiscard]] const void* bias() const {
    return more_ == 0 || !has_bias_ ? from_[1] : scratch_ + BiasPlace();
  }

  // Before each product, as the weight may have changed.
  Status Copy() const {
    if (more_ == 0) return Status::Ok();
    GACCD_RETURN_IF_ERROR(CopyOne(from_[0], row_bytes_, scratch_));
    return has_bias_ ? CopyOne(from_[1], SizeOf(dtype_), scratch_ + BiasPlace()) : Status::Ok();
  }

 private:
  [[nodiscard]] std::size_t BiasPlace() const {
    return static_cast<std::size_t>(rows_ + more_) * row_bytes_;
  }
  Status CopyOne(const void* from, std::size_t row_bytes, std::byte* to) const {
    const std::size_t bytes = static_cast<std::size_t>(rows_) * row_bytes;
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_);
    if (error == cudaSuccess) {
      error = cudaMemsetAsync(to + bytes, 0, static_cast<std::size_t>(more_) * row_bytes, stream_);
    }
    return CudaStatus(error, "copy a weight whose rows are no multiple of 8");
  }

  const CudaContext* context_;
  cudaStream_t stream_;
  DType dtype_;
  std::int64_t rows_ = 0, more_ = 0;
  std::size_t row_bytes_ = 0;
  bool has_bias_ = false;
  const void* from_[2] = {};
  std::byte* scratch_ = nullptr;
};

// The bias and the ReLU of a product that supports neither as an epilogue.
struct SeparateBias {
  KernelStream on;
  DType dtype;
  Matrix size;
  bool relu;

  // bias may be null.
  Status Enqueue(const void* bias, void* y) const {
    if (bias != nullptr) return EnqueueAddBias(on, dtype, bias, y, size, relu);
    return relu ? EnqueueRelu(on, dtype, y, y, size.rows * size.row_stride()) : Status::Ok();
  }
};

// y = x W^T + b (inputs x, W, b), or dx = dy W (inputs dy, W).
class ParameterProduct : public Kernel {
 public:
  ParameterProduct(MatmulPointer matmul, const WeightAndBias& parameters,
                   const std::optional<SeparateBias>& separate = std::nullopt)
      : matmul_(std::move(matmul)), parameters_(parameters), separate_(separate) {}

  [[nodiscard]] std::int64_t scratch_bytes() const override { return parameters_.scratch_bytes(); }
  void Bind(const Operands& operands) override {
    y_ = operands.outputs[0];
    bound_ = parameters_.Bind(operands);
    if (!bound_.ok()) return;
    bound_ = matmul_->Bind(operands.inputs[0], parameters_.weight(),
                           separate_ ? nullptr : parameters_.bias(), y_, nullptr);
  }
  Status Run(OutputMask) override {
    GACCD_RETURN_IF_ERROR(bound_);
    GACCD_RETURN_IF_ERROR(parameters_.Copy());
    GACCD_RETURN_IF_ERROR(matmul_->Run());
    return separate_ ? separate_->Enqueue(parameters_.bias(), y_) : Status::Ok();
  }

 private:
  MatmulPointer matmul_;
  WeightAndBias parameters_;
  std::optional<SeparateBias> separate_;
  void* y_ = nullptr;
  Status bound_;
};

// dW = dy^T x, or dW += dy^T x: two prepared products, one of which adds. columns: of db, computed
// in the same pass; 0: none. The library can only overwrite db: `overwrite` does; `add` writes the
// sums to scratch memory.
class WeightGradientKernel : public Kernel {
 public:
  WeightGradientKernel(MatmulPointer overwrite, MatmulPointer add, const KernelStream& on,
                       std::int64_t columns)
      : overwrite_(std::move(overwrite)), add_(std::move(add)), on_(on), columns_(columns) {}

  [[nodiscard]] std::int64_t scratch_bytes() const override {
    return columns_ * static_cast<std::int64_t>(sizeof(float));
  }
  void Bind(const Operands& operands) override {
    if (columns_ > 0) {
      db_ = operands.out<float>(1);
      sums_ = static_cast<float*>(operands.scratch);
    }
    bound_ = BindOne(*overwrite_, operands, db_);
    if (bound_.ok()) bound_ = BindOne(*add_, operands, sums_);
  }
  Status Run(OutputMask add) override {
    GACCD_RETURN_IF_ERROR(bound_);
    if (columns_ == 0) return (add[0] ? add_ : overwrite_)->Run();
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

// The same with a product and a separate kernel.
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

// Time of the kernel in microseconds.
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
  (void)cudaStreamSynchronize(on.stream);  // before the memory is freed, also after an error
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
  const void* copy = context.HalfCopy(static_cast<const float*>(parameter));
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
  const WeightAndBias parameters(request, linear.order(), spec.stride_c);
  const Matrix y{spec.m, spec.n, spec.stride_c};
  parameters.Widen(&spec.n, &spec.stride_c);
  spec.relu = relu;
  GACCD_ASSIGN_OR_RETURN(MatmulPointer matmul, MatmulCuda::TryPrepare(request.context, spec));
  if (matmul != nullptr) {
    return MakeKernel<ParameterProduct>(std::move(matmul), parameters);
  }
  request.notes.push_back(StrCat("cuBLASLt cannot run the ", ToText(spec),
                                 ": bias and ReLU are done by a kernel of its own"));
  spec.bias = spec.relu = false;
  GACCD_ASSIGN_OR_RETURN(matmul, MatmulCuda::Prepare(request.context, spec));
  return MakeKernel<ParameterProduct>(std::move(matmul), parameters,
                                      SeparateBias{request.on, spec.ab, y, relu});
}

KernelResult MakeLinearInputGradientCuda(const CudaRequest& request) {
  const WeightOrder order = static_cast<const LinearInputGradient&>(request.function).order();
  MatmulCudaSpec spec = LinearInputGradientSpec(request, order);
  const WeightAndBias parameters(request, order, spec.stride_a);
  parameters.Widen(&spec.k, &spec.stride_a);
  GACCD_ASSIGN_OR_RETURN(MatmulPointer matmul,
                         MatmulCuda::Prepare(request.context, spec, kBackward));
  return MakeKernel<ParameterProduct>(std::move(matmul), parameters);
}

KernelResult MakeLinearWeightGradientCuda(const CudaRequest& request) {
  const MatmulCudaSpec spec = WeightGradientSpec(request);
  GACCD_ASSIGN_OR_RETURN(MatmulPointer overwrite,
                         MatmulCuda::Prepare(request.context, spec, kBackward));
  GACCD_ASSIGN_OR_RETURN(MatmulPointer add,
                         MatmulCuda::Prepare(request.context, Adding(spec), kBackward));
  return MakeKernel<WeightGradientKernel>(std::move(overwrite), std::move(add), request.on, 0);
}

KernelResult MakeLinearWeightBiasGradientCuda(const CudaRequest& request) {
  const std::size_t place =
      static_cast<const LinearWeightBiasGradient&>(request.function).place_of_dy();
  const ValueSpec& dy = request.inputs[place];
  const auto separate = [&]() -> KernelResult {
    GACCD_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> weight, MakeLinearWeightGradientCuda(request));
    return MakeKernel<SeparateBiasGradientKernel>(std::move(weight), request.on, place, dy);
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
  return MakeKernel<WeightGradientKernel>(std::move(overwrite), std::move(add), request.on,
                                          dy.shape[1]);
}

}  // namespace gaccd
