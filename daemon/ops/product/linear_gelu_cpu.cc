// The kernels of linear_gelu.h on the CPU. Blocks of rows, so that pre stays in the cache between
// the product and the activation.
#include <algorithm>
#include <utility>

#include "collectives/base/simd.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/product/linear_cpu.h"
#include "daemon/ops/product/linear_gelu.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

// Of pre, 256 KB. From half as many to four times as many were equally fast with an L2 cache of 2
// MB.
constexpr std::int64_t kBlockValues = std::int64_t{1} << 16;
constexpr std::int64_t kBlockRows = 32;  // at least, and a multiple of it

// y[i] = f(x[i]), slope[i] = f'(x[i])
template <typename Formula, typename T>
GACCD_SIMD_CLONES void ValuesAndSlopes(const float* x, std::int64_t elements, T* y, float* slope) {
  ForEachElement(
      elements,
      [=](std::int64_t i) {
        const ValueAndSlope at = Formula::WithSlope(x[i]);
        y[i] = FromFloat<T>(at.value);
        slope[i] = at.slope;
      },
      y, slope);
}

class LinearGeluKernel : public Kernel {
 public:
  struct Size {
    std::int64_t rows;
    std::int64_t block;
    std::int64_t in_bytes;  // of a row of x
    std::int64_t out;
    std::int64_t y_bytes;  // of a value of y
    bool bias;
  };
  using Activate = void(const float* pre, std::int64_t elements, void* y, float* slope);

  LinearGeluKernel(const Size& size, Activate* activate, Matmul block, Matmul last)
      : size_(size), activate_(activate), block_(std::move(block)), last_(std::move(last)) {}

  [[nodiscard]] std::int64_t scratch_bytes() const override {
    return PreBytes() + std::max(block_.scratch_bytes(), last_.scratch_bytes());
  }
  void Bind(const Operands& operands) override {
    x_ = operands.in<char>(0);
    weight_ = operands.inputs[1];
    bias_ = size_.bias ? operands.in<float>(2) : nullptr;
    y_ = operands.out<char>(0);
    slope_ = operands.out<float>(1);
    scratch_ = static_cast<char*>(operands.scratch);
  }
  Status Run(OutputMask) override {
    auto* const pre = reinterpret_cast<float*>(scratch_);
    for (std::int64_t row = 0; row < size_.rows; row += size_.block) {
      const std::int64_t rows = std::min(size_.block, size_.rows - row);
      Matmul& product = rows == size_.block ? block_ : last_;
      product.Bind(x_ + row * size_.in_bytes, weight_, bias_, pre, scratch_ + PreBytes());
      GACCD_RETURN_IF_ERROR(product.Run());
      const std::int64_t at = row * size_.out;
      activate_(pre, rows * size_.out, y_ + at * size_.y_bytes, slope_ + at);
    }
    return Status::Ok();
  }

 private:
  [[nodiscard]] std::int64_t PreBytes() const {
    constexpr std::int64_t kAlignment = 64;
    const auto bytes = size_.block * size_.out * static_cast<std::int64_t>(sizeof(float));
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  Size size_;
  Activate* activate_;
  Matmul block_;
  Matmul last_;
  const char* x_ = nullptr;
  const void* weight_ = nullptr;
  const float* bias_ = nullptr;
  char* y_ = nullptr;
  float* slope_ = nullptr;
  char* scratch_ = nullptr;
};

template <typename T>
LinearGeluKernel::Activate* SelectActivation(ActivationKind kind) {
  const auto select = [](auto formula) -> LinearGeluKernel::Activate* {
    return [](const float* pre, std::int64_t elements, void* y, float* slope) {
      ValuesAndSlopes<decltype(formula)>(pre, elements, static_cast<T*>(y), slope);
    };
  };
  return kind == ActivationKind::kGelu ? select(GeluFormula<ExactMath>())
                                       : select(GeluTanhFormula<ExactMath>());
}

// dpre = (dy W) * slope, one product.
class TimesKernel : public Kernel {
 public:
  explicit TimesKernel(Matmul matmul) : matmul_(std::move(matmul)) {}

  [[nodiscard]] std::int64_t scratch_bytes() const override { return matmul_.scratch_bytes(); }
  void Bind(const Operands& operands) override {
    matmul_.Bind(operands.inputs[0], operands.inputs[1], nullptr, operands.outputs[0],
                 operands.scratch, operands.in<float>(2));
  }
  Status Run(OutputMask) override { return matmul_.Run(); }

 private:
  Matmul matmul_;
};

}  // namespace

KernelResult MakeLinearGeluCpu(const KernelRequest& request, const CpuEnvironment& environment) {
  const auto& function = static_cast<const LinearGelu&>(request.function);
  const Shape& x = request.inputs[0].shape;
  const std::int64_t rows = x[0];
  const std::int64_t out = request.outputs[0].shape[1];
  const std::int64_t wanted =
      std::max(kBlockValues / std::max<std::int64_t>(out, 1) / kBlockRows, std::int64_t{1}) *
      kBlockRows;
  const std::int64_t block = std::min(rows, wanted);
  const std::int64_t rest = block > 0 ? rows % block : 0;
  WeightProduct product{.rows = block,
                        .transpose = function.linear().order() == WeightOrder::kOutIn,
                        .bias = request.inputs.size() == 3,
                        .output = 1,
                        .runs = block > 0 ? (rows + block - 1) / block : 1};
  GACCD_ASSIGN_OR_RETURN(Matmul of_block, PrepareWithWeight(request, environment, product));
  if (rest > 0) product.rows = rest;
  GACCD_ASSIGN_OR_RETURN(Matmul of_last, PrepareWithWeight(request, environment, product));
  const auto bytes = [](const ValueSpec& spec) {
    return static_cast<std::int64_t>(SizeOf(spec.dtype));
  };
  const bool y_bf16 = request.outputs[0].dtype == DType::kBF16;
  const LinearGeluKernel::Size size{.rows = rows,
                                    .block = std::max(block, std::int64_t{1}),
                                    .in_bytes = x[1] * bytes(request.inputs[0]),
                                    .out = out,
                                    .y_bytes = bytes(request.outputs[0]),
                                    .bias = product.bias};
  return MakeKernel<LinearGeluKernel>(
      size,
      y_bf16 ? SelectActivation<Bf16>(function.kind()) : SelectActivation<float>(function.kind()),
      std::move(of_block), std::move(of_last));
}

KernelResult MakeLinearInputGradientTimesCpu(const KernelRequest& request,
                                             const CpuEnvironment& environment) {
  const auto& function = static_cast<const LinearInputGradientTimes&>(request.function);
  GACCD_ASSIGN_OR_RETURN(Matmul matmul, PrepareWithWeight(request, environment,
                                                          {.rows = request.inputs[0].shape[0],
                                                           .transpose = function.linear().order() ==
                                                                        WeightOrder::kInOut,
                                                           .multiply = true}));
  return MakeKernel<TimesKernel>(std::move(matmul));
}

}  // namespace gaccd
