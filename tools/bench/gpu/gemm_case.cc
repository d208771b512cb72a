// One matrix product of a linear layer on random data, with the algorithm that cuBLASLt offers
// first or the one that is timed as the fastest; the weight gradient also with its bias gradient,
// the other two also with GELU, in the product's pass or by a kernel.
#include <algorithm>

#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/device/cuda/matmul_cuda.h"
#include "daemon/ops/cuda_kernels.h"
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

// y = x W^T + b, or dx = dy W, or dW += dy^T x; of Conv1D, dW += x^T dy: "weight_in_out". y
// and dy lie as in models.
Result<MatmulCudaSpec> MakeMatmulSpec(const std::string& part, const Layer& layer, DType dtype) {
  const std::int64_t stride = RowStrideFor(dtype, layer.out);
  // As linear_cuda.cc widens the weight.
  const std::int64_t out =
      stride > 0 ? (layer.out + kRowsTogether - 1) / kRowsTogether * kRowsTogether : layer.out;
  if (part == "forward") {
    return MatmulCudaSpec{.m = layer.rows,
                          .n = out,
                          .k = layer.in,
                          .transpose_b = true,
                          .ab = dtype,
                          .c = dtype,
                          .bias = true,
                          .stride_c = stride};
  }
  if (part == "input") {
    return MatmulCudaSpec{
        .m = layer.rows, .n = layer.in, .k = out, .ab = dtype, .c = dtype, .stride_a = stride};
  }
  if (part == "weight") {
    return MatmulCudaSpec{.m = layer.out,
                          .n = layer.in,
                          .k = layer.rows,
                          .transpose_a = true,
                          .ab = dtype,
                          .accumulate = true,
                          .stride_a = stride};
  }
  if (part == "weight_in_out") {
    return MatmulCudaSpec{.m = layer.in,
                          .n = layer.out,
                          .k = layer.rows,
                          .transpose_a = true,
                          .ab = dtype,
                          .accumulate = true};
  }
  return Status(ErrorKind::kUsage,
                "part: expected forward, input, weight or weight_in_out, found '" + part + "'");
}

Result<DeviceBuffer> Random(DType dtype, std::int64_t elements) {
  GACCD_ASSIGN_OR_RETURN(
      DeviceBuffer buffer,
      DeviceBuffer::Allocate(static_cast<std::size_t>(elements) * SizeOf(dtype), "an operand"));
  GACCD_RETURN_IF_ERROR(FillRandom(buffer, dtype));
  return buffer;
}

// What is done after the product by a kernel of its own.
enum class Then : std::uint8_t { kNothing, kBiasGradient, kGelu, kGeluGradient };

class GemmCase final : public GpuCase {
 public:
  GemmCase(std::unique_ptr<CudaContext> context, const MatmulCudaSpec& spec, Then then,
           bool sums_of_b)
      : context_(std::move(context)), spec_(spec), then_(then), sums_of_b_(sums_of_b) {}

  Status Prepare() {
    GACCD_ASSIGN_OR_RETURN(matmul_, MatmulCuda::Prepare(*context_, spec_));
    const std::int64_t rows_a = spec_.transpose_a ? spec_.k : spec_.m;
    GACCD_ASSIGN_OR_RETURN(a_,
                           Random(spec_.ab, rows_a * std::max(spec_.stride_a, spec_.columns_a())));
    GACCD_ASSIGN_OR_RETURN(b_, Random(spec_.ab, spec_.k * spec_.n));
    GACCD_ASSIGN_OR_RETURN(c_, Random(spec_.c, spec_.m * std::max(spec_.stride_c, spec_.n)));
    GACCD_ASSIGN_OR_RETURN(bias_, Random(spec_.c, spec_.n));
    GACCD_ASSIGN_OR_RETURN(sums_, Random(DType::kF32, std::max(spec_.m, spec_.n)));
    if (spec_.has_aux() || then_ == Then::kGelu || then_ == Then::kGeluGradient) {
      GACCD_ASSIGN_OR_RETURN(aux_, Random(spec_.c, spec_.m * spec_.n));
    }
    if (then_ == Then::kBiasGradient) {
      GACCD_ASSIGN_OR_RETURN(scratch_,
                             DeviceBuffer::Allocate(BiasGradientScratchBytes(Dy()), "scratch"));
    }
    // Where a kernel does GELU, the product writes the kernel's input.
    void* const c = then_ == Then::kGelu ? aux_.data() : c_.data();
    return matmul_->Bind(a_.data(), b_.data(), bias_.data(), c, sums_.as<float>(), aux_.data());
  }

  Result<double> Run() override {
    return MedianSeconds(context_->compute(), kRepeats, [this]() -> Status {
      GACCD_RETURN_IF_ERROR(matmul_->Run());
      return RunThen();
    });
  }
  // Of multiply-adds: two operations each.
  [[nodiscard]] double proof() const override {
    return 2 * static_cast<double>(spec_.m) * static_cast<double>(spec_.n) *
           static_cast<double>(spec_.k);
  }

 private:
  [[nodiscard]] Matrix Dy() const {
    return sums_of_b_ ? Matrix{spec_.k, spec_.n} : Matrix{spec_.k, spec_.m, spec_.stride_a};
  }

  Status RunThen() {
    const KernelStream on{context_->compute(), context_->multiprocessors(), {}};
    constexpr auto kKind = ActivationKind::kGeluTanh;
    const std::int64_t elements = spec_.m * spec_.n;
    switch (then_) {
      case Then::kNothing:
        return Status::Ok();
      case Then::kBiasGradient:
        return EnqueueBiasGradient(on, spec_.ab, (sums_of_b_ ? b_ : a_).data(), Dy(),
                                   sums_.as<float>(), true, scratch_.data());
      case Then::kGelu:
        return EnqueueActivation(on, kKind, spec_.c, aux_.data(), c_.data(), elements);
      case Then::kGeluGradient:
        return EnqueueActivationGradient(on, kKind, spec_.c, c_.data(), aux_.data(), c_.data(),
                                         elements);
    }
    return {ErrorKind::kInternal, "no such kernel"};
  }

  std::unique_ptr<CudaContext> context_;  // outlives the product
  MatmulCudaSpec spec_;
  Then then_;
  bool sums_of_b_;
  std::unique_ptr<MatmulCuda> matmul_;
  DeviceBuffer a_, b_, c_, bias_, sums_, aux_, scratch_;
};

}  // namespace

MadeCase MakeGemmCase(const CaseArguments& arguments) {
  Layer layer;
  GACCD_ASSIGN_OR_RETURN(layer.rows, arguments.Count("rows"));
  GACCD_ASSIGN_OR_RETURN(layer.in, arguments.Count("in"));
  GACCD_ASSIGN_OR_RETURN(layer.out, arguments.Count("out"));
  const std::string precision = arguments.Text("precision");
  GACCD_ASSIGN_OR_RETURN(const bool timed, arguments.Either("choice", "first", "timed"));
  const std::string part = arguments.Text("part");
  GACCD_ASSIGN_OR_RETURN(
      MatmulCudaSpec spec,
      MakeMatmulSpec(part, layer, precision == "bf16" ? DType::kBF16 : DType::kF32));
  // Of bias gradient or GELU: epilogue, kernel or none.
  const std::string with = arguments.Text("with");
  const bool sums_of_b = part == "weight_in_out";
  const bool is_weight = part == "weight" || sums_of_b;
  Then then = Then::kNothing;
  if (with == "kernel") {
    then = is_weight ? Then::kBiasGradient : part == "input" ? Then::kGeluGradient : Then::kGelu;
  } else if (with == "epilogue" && is_weight) {
    (sums_of_b ? spec.column_sums_of_b : spec.column_sums) = true;
  } else if (with == "epilogue") {
    spec.gelu = part == "input" ? MatmulGelu::kGradient : MatmulGelu::kKeep;
  }
  CudaContextOptions options{.numerics = {.tf32 = precision == "tf32", .time_algorithms = timed},
                             .cublaslt = CublasLtOfBench()};
  GACCD_ASSIGN_OR_RETURN(auto context, CudaContext::Create(options));
  auto made = std::make_unique<GemmCase>(std::move(context), spec, then, sums_of_b);
  GACCD_RETURN_IF_ERROR(made->Prepare());
  return CasePtr(std::move(made));
}

}  // namespace gaccd
