// One matrix product of a linear layer on random data, with the algorithm that cuBLASLt offers
// first or the one that is timed as the fastest; the weight gradient also with its bias gradient.
#include <vector>

#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/fill_random.h"
#include "daemon/device/cuda/matmul_cuda.h"
#include "daemon/ops/kernels_cuda.h"
#include "tools/bench/gpu/gpu_case.h"

namespace gaccd {
namespace {

constexpr int kRepeats = 20;

// Of a layer [in -> out] and `rows` rows of input.
struct Layer {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
};

// y = x W^T + b, or dx = dy W, or dW += dy^T x.
Result<MatmulCudaSpec> SpecOf(const std::string& part, const Layer& layer, DType dtype) {
  if (part == "forward") {
    return MatmulCudaSpec{.m = layer.rows,
                          .n = layer.out,
                          .k = layer.in,
                          .transpose_b = true,
                          .ab = dtype,
                          .c = dtype,
                          .bias = true};
  }
  if (part == "input") {
    return MatmulCudaSpec{.m = layer.rows, .n = layer.in, .k = layer.out, .ab = dtype, .c = dtype};
  }
  if (part == "weight") {
    return MatmulCudaSpec{.m = layer.out,
                          .n = layer.in,
                          .k = layer.rows,
                          .transpose_a = true,
                          .ab = dtype,
                          .accumulate = true};
  }
  return Status(ErrorKind::kUsage, "part: expected forward, input or weight, found '" + part + "'");
}

Result<DeviceBuffer> Random(DType dtype, std::int64_t elements) {
  GACCD_ASSIGN_OR_RETURN(
      DeviceBuffer buffer,
      DeviceBuffer::Allocate(static_cast<std::size_t>(elements) * SizeOf(dtype), "an operand"));
  GACCD_RETURN_IF_ERROR(FillRandom(buffer, dtype));
  return buffer;
}

class GemmCase final : public GpuCase {
 public:
  GemmCase(std::unique_ptr<CudaContext> context, const MatmulCudaSpec& spec, bool bias_kernel)
      : context_(std::move(context)), spec_(spec), bias_kernel_(bias_kernel) {}

  Status Prepare() {
    GACCD_ASSIGN_OR_RETURN(matmul_, MatmulCuda::Prepare(*context_, spec_));
    GACCD_ASSIGN_OR_RETURN(a_, Random(spec_.ab, spec_.m * spec_.k));
    GACCD_ASSIGN_OR_RETURN(b_, Random(spec_.ab, spec_.k * spec_.n));
    GACCD_ASSIGN_OR_RETURN(c_, Random(spec_.c, spec_.m * spec_.n));
    GACCD_ASSIGN_OR_RETURN(bias_, Random(spec_.c, spec_.n));
    GACCD_ASSIGN_OR_RETURN(sums_, Random(DType::kF32, spec_.m));
    if (bias_kernel_) {
      GACCD_ASSIGN_OR_RETURN(
          scratch_,
          DeviceBuffer::Allocate(BiasGradientScratchBytes({spec_.k, spec_.m}), "scratch"));
    }
    return matmul_->Bind(a_.data(), b_.data(), bias_.data(), c_.data(), sums_.as<float>());
  }

  Result<double> Run() override {
    return MedianSeconds(context_->compute(), kRepeats, [this]() -> Status {
      GACCD_RETURN_IF_ERROR(matmul_->Run());
      if (!bias_kernel_) return Status::Ok();
      return EnqueueBiasGradient({context_->compute(), context_->multiprocessors(), {}}, spec_.ab,
                                 a_.data(), {spec_.k, spec_.m}, sums_.as<float>(), true,
                                 scratch_.data());
    });
  }
  // Of multiply-adds: two operations each.
  [[nodiscard]] double proof() const override {
    return 2 * static_cast<double>(spec_.m) * static_cast<double>(spec_.n) *
           static_cast<double>(spec_.k);
  }

 private:
  std::unique_ptr<CudaContext> context_;  // outlives the product
  MatmulCudaSpec spec_;
  bool bias_kernel_;
  std::unique_ptr<MatmulCuda> matmul_;
  DeviceBuffer a_, b_, c_, bias_, sums_, scratch_;
};

}  // namespace

MadeCase MakeGemmCase(const CaseArguments& arguments) {
  Layer layer;
  GACCD_ASSIGN_OR_RETURN(layer.rows, arguments.Count("rows"));
  GACCD_ASSIGN_OR_RETURN(layer.in, arguments.Count("in"));
  GACCD_ASSIGN_OR_RETURN(layer.out, arguments.Count("out"));
  const std::string precision = arguments.Text("precision");
  GACCD_ASSIGN_OR_RETURN(const bool timed, arguments.Either("choice", "first", "timed"));
  GACCD_ASSIGN_OR_RETURN(
      MatmulCudaSpec spec,
      SpecOf(arguments.Text("part"), layer, precision == "bf16" ? DType::kBF16 : DType::kF32));
  const std::string sums = arguments.Text("bias_gradient");  // epilogue, kernel or none
  spec.column_sums = sums == "epilogue";
  CudaContextOptions options{.numerics = {.tf32 = precision == "tf32", .time_algorithms = timed},
                             .cublaslt = CublasLtOfBench()};
  GACCD_ASSIGN_OR_RETURN(auto context, CudaContext::Create(options));
  auto made = std::make_unique<GemmCase>(std::move(context), spec, sums == "kernel");
  GACCD_RETURN_IF_ERROR(made->Prepare());
  return CasePtr(std::move(made));
}

}  // namespace gaccd
