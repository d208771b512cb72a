#include <algorithm>
#include <cmath>

#include "collectives/base/simd.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/ops/norm/row_reductions.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

struct Rows {
  std::int64_t rows;
  std::int64_t columns;
};

// Layer norm; not kCentered: RMS norm, without mean and beta.
template <bool kCentered, typename T>
GACCD_SIMD_CLONES void Forward(const float* x, const float* gamma, const float* beta, Rows size,
                               float eps, T* y, float* means, float* rstds) {
  const auto columns = static_cast<float>(size.columns);
  for (std::int64_t n = 0; n < size.rows; ++n) {
    const float* row = x + n * size.columns;
    float mean = 0;
    if constexpr (kCentered) {
      mean = SumValues(size.columns, [row](std::int64_t d) { return row[d]; }) / columns;
      // The rounding error of a large mean: equal values are exactly 0 from it.
      mean +=
          SumValues(size.columns, [row, mean](std::int64_t d) { return row[d] - mean; }) / columns;
    }
    const float squares = SumValues(
        size.columns, [row, mean](std::int64_t d) { return (row[d] - mean) * (row[d] - mean); });
    const float rstd = 1.0F / std::sqrt(squares / columns + eps);
    T* to = y + n * size.columns;
    PrefetchOutput(to + size.columns, size.columns * sizeof(T));
    GACCD_INDEPENDENT_ITERATIONS
    for (std::int64_t d = 0; d < size.columns; ++d) {
      const float scaled = (row[d] - mean) * rstd * gamma[d];
      to[d] = FromFloat<T>(kCentered ? scaled + beta[d] : scaled);
    }
    if constexpr (kCentered) means[n] = mean;
    rstds[n] = rstd;
  }
}

// Rows are summed by blocks, then blocks are added, which limits rounding errors.
constexpr std::int64_t kBlock = 16;

struct ParameterSums {
  float* gamma;
  float* beta;
};

// One row; dx may alias dy. `residual`, if not null, is added to dx.
template <bool kCentered>
GACCD_SIMD_CLONES void RowGradient(const float* dy, const float* x, const float* gamma, float mean,
                                   float rstd, std::int64_t columns, const float* residual,
                                   float* dx, const ParameterSums& block) {
  float sum = 0;
  if constexpr (kCentered) {
    sum = SumValues(columns, [=](std::int64_t d) { return dy[d] * gamma[d]; });
  }
  const float product =
      SumValues(columns, [=](std::int64_t d) { return dy[d] * gamma[d] * ((x[d] - mean) * rstd); });
  const float mean_g = sum / static_cast<float>(columns);
  const float mean_gh = product / static_cast<float>(columns);
  float* of_gamma = block.gamma;
  float* of_beta = block.beta;
  PrefetchOutput(dx + columns, columns * sizeof(float));
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t d = 0; d < columns; ++d) {
    const float h = (x[d] - mean) * rstd;
    of_gamma[d] += dy[d] * h;
    if constexpr (kCentered) of_beta[d] += dy[d];
    dx[d] = rstd * (dy[d] * gamma[d] - mean_g - h * mean_gh);
  }
  if (residual == nullptr) return;
  for (std::int64_t d = 0; d < columns; ++d) dx[d] += residual[d];
}

GACCD_SIMD_CLONES
void AddTo(float* sums, const float* block, std::int64_t columns, bool add) {
  for (std::int64_t d = 0; d < columns; ++d) sums[d] = (add ? sums[d] : 0.0F) + block[d];
}

// Scratch: the sums of a block and the totals, 4 D values. Not kCentered: without mean and dbeta.
template <bool kCentered>
void Backward(const Call& c, Rows size) {
  auto* memory = static_cast<float*>(c.scratch);
  const std::int64_t columns = size.columns;
  const float* const means = kCentered ? c.in<float>(3) : nullptr;
  const float* const rstds = c.in<float>(kCentered ? 4 : 3);
  const float* const residual = kCentered ? c.optional_in<float>(5) : nullptr;
  const ParameterSums block{memory, memory + columns};
  const ParameterSums all{memory + 2 * columns, memory + 3 * columns};
  std::fill_n(all.gamma, 2 * columns, 0.0F);
  for (std::int64_t begin = 0; begin < size.rows; begin += kBlock) {
    std::fill_n(block.gamma, 2 * columns, 0.0F);
    for (std::int64_t n = begin; n < std::min(begin + kBlock, size.rows); ++n) {
      const std::int64_t at = n * columns;
      RowGradient<kCentered>(c.in<float>(0) + at, c.in<float>(1) + at, c.in<float>(2),
                             kCentered ? means[n] : 0.0F, rstds[n], columns,
                             residual == nullptr ? nullptr : residual + at, c.out<float>(0) + at,
                             block);
    }
    AddTo(all.gamma, block.gamma, 2 * columns, true);
  }
  AddTo(c.out<float>(1), all.gamma, columns, c.add[1]);
  if constexpr (kCentered) AddTo(c.out<float>(2), all.beta, columns, c.add[2]);
}

Rows ToRows(const KernelRequest& request) {
  return {request.inputs[0].shape[0], request.inputs[0].shape[1]};
}

template <bool kCentered>
KernelResult MakeForward(const KernelRequest& request, float eps) {
  const bool bf16 = request.outputs[0].dtype == DType::kBF16;
  return MakeCall(request, [size = ToRows(request), eps, bf16](const Call& c) {
    const auto run = [&](auto* y) {
      Forward<kCentered>(c.in<float>(0), c.in<float>(1), kCentered ? c.in<float>(2) : nullptr, size,
                         eps, y, kCentered ? c.out<float>(1) : nullptr,
                         c.out<float>(kCentered ? 2 : 1));
    };
    bf16 ? run(c.out<Bf16>(0)) : run(c.out<float>(0));
    return Status::Ok();
  });
}

template <bool kCentered>
KernelResult MakeBackward(const KernelRequest& request) {
  const Rows size = ToRows(request);
  return MakeCall(
      request,
      [size](const Call& c) {
        Backward<kCentered>(c, size);
        return Status::Ok();
      },
      static_cast<std::size_t>(size.columns) * 4 * sizeof(float));
}

}  // namespace

KernelResult MakeLayerNormCpu(const KernelRequest& request) {
  return MakeForward<true>(request, static_cast<const LayerNorm&>(request.function).eps());
}
KernelResult MakeLayerNormGradientCpu(const KernelRequest& request) {
  return MakeBackward<true>(request);
}
KernelResult MakeRmsNormCpu(const KernelRequest& request) {
  return MakeForward<false>(request, static_cast<const RmsNorm&>(request.function).eps());
}
KernelResult MakeRmsNormGradientCpu(const KernelRequest& request) {
  return MakeBackward<false>(request);
}

}  // namespace gaccd
