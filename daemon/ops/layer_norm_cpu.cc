#include <algorithm>
#include <cmath>

#include "collectives/base/simd.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/layer_norm.h"
#include "daemon/ops/row_reductions.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

struct Rows {
  std::int64_t rows;
  std::int64_t columns;
};

GACCD_SIMD_CLONES
void Forward(const float* x, const float* gamma, const float* beta, Rows size, float eps, float* y,
             float* means, float* rstds) {
  const auto columns = static_cast<float>(size.columns);
  for (std::int64_t n = 0; n < size.rows; ++n) {
    const float* row = x + n * size.columns;
    const float mean = SumOf(size.columns, [row](std::int64_t d) { return row[d]; }) / columns;
    const float squares = SumOf(
        size.columns, [row, mean](std::int64_t d) { return (row[d] - mean) * (row[d] - mean); });
    const float rstd = 1.0F / std::sqrt(squares / columns + eps);
    float* to = y + n * size.columns;
    for (std::int64_t d = 0; d < size.columns; ++d) {
      to[d] = (row[d] - mean) * rstd * gamma[d] + beta[d];
    }
    means[n] = mean;
    rstds[n] = rstd;
  }
}

// dx may be dy.
GACCD_SIMD_CLONES
void InputGradient(const float* dy, const float* x, const float* gamma, const float* means,
                   const float* rstds, Rows size, float* dx) {
  const auto columns = static_cast<float>(size.columns);
  for (std::int64_t n = 0; n < size.rows; ++n) {
    const float* from = dy + n * size.columns;
    const float* row = x + n * size.columns;
    const float mean = means[n];
    const float rstd = rstds[n];
    const float sum = SumOf(size.columns, [=](std::int64_t d) { return from[d] * gamma[d]; });
    const float product = SumOf(size.columns, [=](std::int64_t d) {
      return from[d] * gamma[d] * ((row[d] - mean) * rstd);
    });
    const float mean_g = sum / columns;
    const float mean_gh = product / columns;
    float* to = dx + n * size.columns;
    for (std::int64_t d = 0; d < size.columns; ++d) {
      to[d] = rstd * (from[d] * gamma[d] - mean_g - (row[d] - mean) * rstd * mean_gh);
    }
  }
}

// A tile of columns at a time, in blocks of rows: chains of additions stay short.
GACCD_SIMD_CLONES
void ScaleGradient(const float* dy, const float* x, const float* means, const float* rstds,
                   Rows size, bool accumulate, float* dgamma) {
  constexpr std::int64_t kTile = 64;
  constexpr std::int64_t kBlock = 16;
  for (std::int64_t tile = 0; tile < size.columns; tile += kTile) {
    const std::int64_t width = std::min(kTile, size.columns - tile);
    float total[kTile] = {};
    for (std::int64_t begin = 0; begin < size.rows; begin += kBlock) {
      float block[kTile] = {};
      for (std::int64_t n = begin; n < std::min(begin + kBlock, size.rows); ++n) {
        const float* from = dy + n * size.columns + tile;
        const float* row = x + n * size.columns + tile;
        const float mean = means[n];
        const float rstd = rstds[n];
        for (std::int64_t d = 0; d < width; ++d) block[d] += from[d] * ((row[d] - mean) * rstd);
      }
      for (std::int64_t d = 0; d < width; ++d) total[d] += block[d];
    }
    for (std::int64_t d = 0; d < width; ++d) {
      dgamma[tile + d] = accumulate ? dgamma[tile + d] + total[d] : total[d];
    }
  }
}

Rows RowsOf(const KernelRequest& request) {
  return {request.inputs[0].shape[0], request.inputs[0].shape[1]};
}

}  // namespace

KernelResult MakeLayerNormCpu(const KernelRequest& request) {
  const float eps = static_cast<const LayerNorm&>(request.function).eps();
  return std::unique_ptr<Kernel>(
      std::make_unique<CallKernel>(request, [size = RowsOf(request), eps](const Call& c) {
        Forward(c.in<float>(0), c.in<float>(1), c.in<float>(2), size, eps, c.out<float>(0),
                c.out<float>(1), c.out<float>(2));
        return Status::Ok();
      }));
}

KernelResult MakeLayerNormInputGradientCpu(const KernelRequest& request) {
  return std::unique_ptr<Kernel>(
      std::make_unique<CallKernel>(request, [size = RowsOf(request)](const Call& c) {
        InputGradient(c.in<float>(0), c.in<float>(1), c.in<float>(2), c.in<float>(3),
                      c.in<float>(4), size, c.out<float>(0));
        return Status::Ok();
      }));
}

KernelResult MakeLayerNormScaleGradientCpu(const KernelRequest& request) {
  return std::unique_ptr<Kernel>(
      std::make_unique<CallKernel>(request, [size = RowsOf(request)](const Call& c) {
        ScaleGradient(c.in<float>(0), c.in<float>(1), c.in<float>(2), c.in<float>(3), size,
                      c.add[0], c.out<float>(0));
        return Status::Ok();
      }));
}

}  // namespace gaccd
