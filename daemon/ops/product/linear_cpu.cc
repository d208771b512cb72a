#include "daemon/ops/product/linear_cpu.h"

#include <algorithm>
#include <utility>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"
#include "daemon/device/cpu/matmul.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/product/linear.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

// Number of runs from which a packed copy of the weight pays off. Measured on one AVX-512 core,
// weight [512, 784], 32 rows:
//   forward (transposed weight):          118 us plain, 95 us packed, 31 us to pack
//   input gradient (not transposed):       78 us plain, 62 us packed, 14 us to pack
constexpr std::int64_t kPackFromRuns = 2;

// Limits from which an f32 weight gradient uses TransposedProduct(). With fewer rows it is not
// faster; for less work its preparation, 20 ms, does not pay off.
constexpr std::int64_t kUnpreparedFromRows = 48;
constexpr std::int64_t kUnpreparedFromProduct = std::int64_t{1} << 23;  // rows x in x out

// One product, then ReLU of the first `relu_elements` values: not by oneDNN, whose ReLU turns a NaN
// into 0. Operands are in the node's order given here.
class MatmulKernel : public Kernel {
 public:
  MatmulKernel(Matmul matmul, bool has_bias, std::int64_t relu_elements = 0, bool bf16_y = false)
      : matmul_(std::move(matmul)),
        has_bias_(has_bias),
        relu_elements_(relu_elements),
        bf16_y_(bf16_y) {}

  [[nodiscard]] std::int64_t scratch_bytes() const override { return matmul_.scratch_bytes(); }
  void Bind(const Operands& operands) override {
    matmul_.Bind(operands.inputs[0], operands.inputs[1],
                 has_bias_ ? operands.in<float>(2) : nullptr, operands.outputs[0],
                 operands.scratch);
    y_ = operands.outputs[0];
  }
  Status Run(OutputMask) override {
    GACCD_RETURN_IF_ERROR(matmul_.Run());
    bf16_y_ ? ReluInPlace(static_cast<Bf16*>(y_), relu_elements_)
            : ReluInPlace(static_cast<float*>(y_), relu_elements_);
    return Status::Ok();
  }

 private:
  Matmul matmul_;
  bool has_bias_;
  std::int64_t relu_elements_;
  bool bf16_y_;
  void* y_ = nullptr;
};

// dW = a^T b, or dW += a^T b: two prepared products, one of which adds.
class WeightGradientKernel : public Kernel {
 public:
  WeightGradientKernel(Matmul overwrite, Matmul add)
      : overwrite_(std::move(overwrite)), add_(std::move(add)) {}

  [[nodiscard]] std::int64_t scratch_bytes() const override {
    return std::max(overwrite_.scratch_bytes(), add_.scratch_bytes());
  }
  void Bind(const Operands& operands) override {
    for (Matmul* matmul : {&overwrite_, &add_}) {
      matmul->Bind(operands.inputs[0], operands.inputs[1], nullptr, operands.out<float>(0),
                   operands.scratch);
    }
  }
  Status Run(OutputMask add) override { return (add[0] ? add_ : overwrite_).Run(); }

 private:
  Matmul overwrite_;
  Matmul add_;
};

// Adds rows to totals by blocks of kSumRows, a tile of columns at a time: rounding errors grow with
// the longest chain of additions, which is 16 + rows / 16 instead of `rows`. Sequential addition of
// 3072 rows had an error of 1e-6 of the norm, several times that of the products.
constexpr std::int64_t kSumRows = 16;
template <typename T, typename Sum>
GACCD_SIMD_CLONES void SumRows(const T* dy, std::int64_t rows, std::int64_t columns, Sum* totals) {
  constexpr std::int64_t kTile = 256;
  for (std::int64_t tile = 0; tile < columns; tile += kTile) {
    const std::int64_t width = std::min(kTile, columns - tile);
    for (std::int64_t begin = 0; begin < rows; begin += kSumRows) {
      Sum block[kTile] = {};
      for (std::int64_t m = begin; m < std::min(begin + kSumRows, rows); ++m) {
        const T* row = dy + m * columns + tile;
        for (std::int64_t n = 0; n < width; ++n) block[n] += ToFloat(row[n]);
      }
      for (std::int64_t n = 0; n < width; ++n) totals[tile + n] += block[n];
    }
  }
}

template <typename Sum>
void WriteTotals(const Sum* totals, std::int64_t columns, bool accumulate, float* db) {
  for (std::int64_t n = 0; n < columns; ++n) {
    db[n] = static_cast<float>(accumulate ? db[n] + totals[n] : totals[n]);
  }
}

template <typename T, typename Sum>
void SumAllRows(const CallKernel::Call& c, std::int64_t rows, std::int64_t columns) {
  auto* const totals = static_cast<Sum*>(c.scratch);
  std::fill_n(totals, columns, Sum{0});
  SumRows(c.in<T>(0), rows, columns, totals);
  WriteTotals(totals, columns, c.add[0], c.out<float>(0));
}

}  // namespace

Result<Matmul> PrepareWithWeight(const KernelRequest& request, const CpuEnvironment& environment,
                                 const WeightProduct& product) {
  const ValueSpec& a = request.inputs[0];
  const ValueSpec& c = request.outputs[product.output];
  const bool bf16 = a.dtype == DType::kBF16;
  if (bf16 && request.parameters[1] == nullptr) {
    return Status(ErrorKind::kConfig,
                  StrCat("'", request.function.name(),
                         "' on the CPU: expected a weight that is a parameter, as its input is "
                         "bf16, found another value"));
  }
  const bool pack = bf16 || product.runs * environment.options.runs_per_update >= kPackFromRuns;
  return Matmul::Prepare(environment.context, {.m = product.rows,
                                               .n = c.shape[1],
                                               .k = a.shape[1],
                                               .transpose_b = product.transpose,
                                               .bias = product.bias,
                                               .multiply = product.multiply,
                                               .bf16 = bf16,
                                               .bf16_c = c.dtype == DType::kBF16,
                                               .packed_b = pack ? request.parameters[1] : nullptr});
}

KernelResult MakeLinearCpu(const KernelRequest& request, const CpuEnvironment& environment) {
  const auto& linear = static_cast<const Linear&>(request.function);
  const bool bias = request.inputs.size() == 3;
  GACCD_ASSIGN_OR_RETURN(Matmul matmul,
                         PrepareWithWeight(request, environment,
                                           {.rows = request.inputs[0].shape[0],
                                            .transpose = linear.order() == WeightOrder::kOutIn,
                                            .bias = bias}));
  return MakeKernel<MatmulKernel>(std::move(matmul), bias,
                                  linear.relu() ? Elements(request.outputs[0].shape) : 0,
                                  request.outputs[0].dtype == DType::kBF16);
}

KernelResult MakeLinearInputGradientCpu(const KernelRequest& request,
                                        const CpuEnvironment& environment) {
  const WeightOrder order = static_cast<const LinearInputGradient&>(request.function).order();
  // The opposite of the forward.
  const bool transpose = order == WeightOrder::kInOut;
  GACCD_ASSIGN_OR_RETURN(Matmul matmul, PrepareWithWeight(request, environment,
                                                          {.rows = request.inputs[0].shape[0],
                                                           .transpose = transpose}));
  return MakeKernel<MatmulKernel>(std::move(matmul), false);
}

namespace {

// Whether the f32 product a^T b uses TransposedProduct().
bool UsesTransposedProduct(const KernelRequest& request, const CpuEnvironment& environment) {
  const Shape& a = request.inputs[0].shape;
  const Shape& b = request.inputs[1].shape;
  // A product with one row or column adds the rows one after another, in all micro-steps.
  const bool blocked = a[1] > 1 && b[1] > 1;
  return request.inputs[0].dtype == DType::kF32 && !environment.context.f64_sums() && blocked &&
         a[0] >= kUnpreparedFromRows && a[0] * a[1] * b[1] >= kUnpreparedFromProduct;
}

// Of these many rows, dy is in the cache for both gradients.
constexpr std::int64_t kTogether = 256;
static_assert(kTogether % kSumRows == 0);

// dW and db of a transposed product, so that dy is read from memory once.
Status WeightBiasGradient(const CallKernel::Call& c, const Shape& a, std::int64_t b_columns,
                          std::size_t dy) {
  const std::int64_t columns = dy == 0 ? a[1] : b_columns;
  auto* const totals = static_cast<float*>(c.scratch);
  std::fill_n(totals, columns, 0.0F);
  for (std::int64_t row = 0; row < a[0]; row += kTogether) {
    const std::int64_t rows = std::min(kTogether, a[0] - row);
    SumRows(c.in<float>(dy) + row * columns, rows, columns, totals);
    GACCD_RETURN_IF_ERROR(TransposedProduct(c.in<float>(0) + row * a[1],
                                            c.in<float>(1) + row * b_columns, a[1], b_columns, rows,
                                            c.add[0] || row > 0, c.out<float>(0)));
  }
  WriteTotals(totals, columns, c.add[1], c.out<float>(1));
  return Status::Ok();
}

// Two kernels, one after the other; the second one reads one of the inputs and writes output 1.
class WeightThenBias : public Kernel {
 public:
  WeightThenBias(std::unique_ptr<Kernel> weight, std::unique_ptr<Kernel> bias, std::size_t dy)
      : weight_(std::move(weight)), bias_(std::move(bias)), dy_(dy) {}

  [[nodiscard]] std::int64_t scratch_bytes() const override {
    return std::max(weight_->scratch_bytes(), bias_->scratch_bytes());
  }
  void Bind(const Operands& operands) override {
    weight_->Bind({operands.inputs, operands.outputs.first(1), operands.scratch});
    bias_->Bind({operands.inputs.subspan(dy_, 1), operands.outputs.subspan(1), operands.scratch});
  }
  Status Run(OutputMask add) override {
    GACCD_RETURN_IF_ERROR(weight_->Run(add));
    return bias_->Run(add >> 1);
  }

 private:
  std::unique_ptr<Kernel> weight_;
  std::unique_ptr<Kernel> bias_;
  std::size_t dy_;
};

}  // namespace

KernelResult MakeLinearWeightGradientCpu(const KernelRequest& request,
                                         const CpuEnvironment& environment) {
  const Shape& a = request.inputs[0].shape;
  const Shape& b = request.inputs[1].shape;
  const bool bf16 = request.inputs[0].dtype == DType::kBF16;
  if (UsesTransposedProduct(request, environment)) {
    GACCD_RETURN_IF_ERROR(PrepareTransposedProducts());
    return MakeCall(request, [=](const CallKernel::Call& c) {
      return TransposedProduct(c.in<float>(0), c.in<float>(1), a[1], b[1], a[0], c.add[0],
                               c.out<float>(0));
    });
  }
  MatmulSpec spec{.m = a[1], .n = b[1], .k = a[0], .transpose_a = true, .bf16 = bf16};
  GACCD_ASSIGN_OR_RETURN(Matmul overwrite, Matmul::Prepare(environment.context, spec));
  spec.accumulate = true;
  GACCD_ASSIGN_OR_RETURN(Matmul add, Matmul::Prepare(environment.context, spec));
  return MakeKernel<WeightGradientKernel>(std::move(overwrite), std::move(add));
}

KernelResult MakeBiasGradientCpu(const KernelRequest& request, const CpuEnvironment& environment) {
  const std::int64_t columns = request.outputs[0].shape[0];
  const std::int64_t rows = columns > 0 ? Elements(request.inputs[0].shape) / columns : 0;
  const bool bf16 = request.inputs[0].dtype == DType::kBF16;
  const bool f64 = environment.context.f64_sums();
  const auto sum = bf16  ? &SumAllRows<Bf16, float>
                   : f64 ? &SumAllRows<float, double>
                         : &SumAllRows<float, float>;
  return MakeCall(
      request,
      [=](const CallKernel::Call& c) {
        sum(c, rows, columns);
        return Status::Ok();
      },
      static_cast<std::size_t>(columns) * sizeof(double));
}

KernelResult MakeLinearWeightBiasGradientCpu(const KernelRequest& request,
                                             const CpuEnvironment& environment) {
  const std::size_t dy =
      static_cast<const LinearWeightBiasGradient&>(request.function).place_of_dy();
  const KernelRequest of_weight{request.function, request.inputs, request.outputs.first(1),
                                request.parameters};
  if (UsesTransposedProduct(of_weight, environment)) {
    GACCD_RETURN_IF_ERROR(PrepareTransposedProducts());
    const Shape a = request.inputs[0].shape;
    const std::int64_t b_columns = request.inputs[1].shape[1];
    return MakeCall(
        request, [=](const CallKernel::Call& c) { return WeightBiasGradient(c, a, b_columns, dy); },
        static_cast<std::size_t>(request.outputs[1].shape[0]) * sizeof(float));
  }
  GACCD_ASSIGN_OR_RETURN(auto weight, MakeLinearWeightGradientCpu(of_weight, environment));
  GACCD_ASSIGN_OR_RETURN(
      auto bias,
      MakeBiasGradientCpu({request.function, request.inputs.subspan(dy, 1),
                           request.outputs.subspan(1), request.parameters.subspan(dy, 1)},
                          environment));
  return MakeKernel<WeightThenBias>(std::move(weight), std::move(bias), dy);
}

}  // namespace gaccd
