#include <algorithm>
#include <cmath>

#include "collectives/base/simd.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/layout/pool_rows.h"
#include "daemon/ops/norm/row_functions.h"
#include "daemon/ops/norm/row_reductions.h"
#include "daemon/ops/pointwise/math.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Outputs may alias the first input of a loop.
GACCD_SIMD_CLONES
void SoftmaxLoop(const float* x, std::int64_t rows, std::int64_t columns, float* y) {
  for (std::int64_t n = 0; n < rows; ++n, x += columns, y += columns) {
    const float top = FindLargest(x, columns);
    for (std::int64_t d = 0; d < columns; ++d) y[d] = Exp(x[d] - top);
    const auto scale =
        static_cast<float>(1 / SumValuesInBlocks(columns, [y](std::int64_t d) { return y[d]; }));
    for (std::int64_t d = 0; d < columns; ++d) y[d] *= scale;
  }
}

GACCD_SIMD_CLONES
void SoftmaxGradientLoop(const float* dy, const float* y, std::int64_t rows, std::int64_t columns,
                         float* dx) {
  for (std::int64_t n = 0; n < rows; ++n, dy += columns, y += columns, dx += columns) {
    const auto product = static_cast<float>(
        SumValuesInBlocks(columns, [dy, y](std::int64_t d) { return dy[d] * y[d]; }));
    for (std::int64_t d = 0; d < columns; ++d) dx[d] = y[d] * (dy[d] - product);
  }
}

GACCD_SIMD_CLONES
void NormalizeLoop(const float* x, std::int64_t rows, std::int64_t columns, float eps, float* y,
                   float* norms) {
  for (std::int64_t n = 0; n < rows; ++n, x += columns, y += columns) {
    const auto norm = static_cast<float>(
        std::sqrt(SumValuesInBlocks(columns, [x](std::int64_t d) { return x[d] * x[d]; })));
    const float divisor = norm < eps ? eps : norm;  // a NaN stays NaN
    for (std::int64_t d = 0; d < columns; ++d) y[d] = x[d] / divisor;
    norms[n] = norm;
  }
}

GACCD_SIMD_CLONES
void NormalizeGradientLoop(const float* dy, const float* y, const float* norms, std::int64_t rows,
                           std::int64_t columns, float eps, float* dx) {
  for (std::int64_t n = 0; n < rows; ++n, dy += columns, y += columns, dx += columns) {
    const bool constant = norms[n] < eps;
    const float divisor = constant ? eps : norms[n];
    const auto product = constant ? 0.0F
                                  : static_cast<float>(SumValuesInBlocks(
                                        columns, [dy, y](std::int64_t d) { return dy[d] * y[d]; }));
    for (std::int64_t d = 0; d < columns; ++d) dx[d] = (dy[d] - y[d] * product) / divisor;
  }
}

// to = or += factor * from.
GACCD_SIMD_CLONES
void AddScaled(const float* from, std::int64_t columns, float factor, bool add, float* to) {
  for (std::int64_t d = 0; d < columns; ++d) to[d] = (add ? to[d] : 0.0F) + factor * from[d];
}

// Sequences of `length` rows.
struct Sequences {
  std::int64_t count, length, columns;

  [[nodiscard]] std::int64_t Known(const std::int32_t* lengths, std::int64_t b) const {
    return lengths == nullptr ? length : std::clamp<std::int64_t>(lengths[b], 0, length);
  }
};

void MeanRows(const Sequences& z, const float* x, const std::int32_t* lengths, float* y) {
  for (std::int64_t b = 0; b < z.count; ++b, x += z.length * z.columns, y += z.columns) {
    const std::int64_t known = z.Known(lengths, b);
    std::fill_n(y, z.columns, 0.0F);
    for (std::int64_t t = 0; t < known; ++t) AddScaled(x + t * z.columns, z.columns, 1, true, y);
    if (known > 0) AddScaled(y, z.columns, 1.0F / static_cast<float>(known), false, y);
  }
}

void MeanRowsGradient(const Sequences& z, const float* dy, const std::int32_t* lengths, float* dx) {
  for (std::int64_t b = 0; b < z.count; ++b, dy += z.columns, dx += z.length * z.columns) {
    const std::int64_t known = z.Known(lengths, b);
    for (std::int64_t t = 0; t < known; ++t) {
      AddScaled(dy, z.columns, 1.0F / static_cast<float>(known), false, dx + t * z.columns);
    }
    std::fill_n(dx + known * z.columns, (z.length - known) * z.columns, 0.0F);
  }
}

Sequences MakeSequences(const Shape& pooled, std::int64_t length) {
  return {pooled[0], length, pooled[1]};
}

}  // namespace

KernelResult MakeSoftmaxCpu(const KernelRequest& request) {
  return MakeCall(request, [size = request.inputs[0].shape](const Call& c) {
    SoftmaxLoop(c.in<float>(0), size[0], size[1], c.out<float>(0));
    return Status::Ok();
  });
}

KernelResult MakeSoftmaxGradientCpu(const KernelRequest& request) {
  return MakeCall(request, [size = request.inputs[0].shape](const Call& c) {
    SoftmaxGradientLoop(c.in<float>(0), c.in<float>(1), size[0], size[1], c.out<float>(0));
    return Status::Ok();
  });
}

KernelResult MakeL2NormalizeCpu(const KernelRequest& request) {
  const float eps = static_cast<const L2Normalize&>(request.function).eps();
  return MakeCall(request, [size = request.inputs[0].shape, eps](const Call& c) {
    NormalizeLoop(c.in<float>(0), size[0], size[1], eps, c.out<float>(0), c.out<float>(1));
    return Status::Ok();
  });
}

KernelResult MakeL2NormalizeGradientCpu(const KernelRequest& request) {
  const float eps = static_cast<const L2NormalizeGradient&>(request.function).eps();
  return MakeCall(request, [size = request.inputs[0].shape, eps](const Call& c) {
    NormalizeGradientLoop(c.in<float>(0), c.in<float>(1), c.in<float>(2), size[0], size[1], eps,
                          c.out<float>(0));
    return Status::Ok();
  });
}

KernelResult MakePoolRowsCpu(const KernelRequest& request) {
  const auto& pool = static_cast<const PoolRows&>(request.function);
  const Sequences z = MakeSequences(request.outputs[0].shape, pool.length());
  return MakeCall(request, [z, mean = pool.kind() == PoolKind::kMean](const Call& c) {
    if (mean) {
      MeanRows(z, c.in<float>(0), c.optional_in<std::int32_t>(1), c.out<float>(0));
      return Status::Ok();
    }
    for (std::int64_t b = 0; b < z.count; ++b) {
      std::copy_n(c.in<float>(0) + b * z.length * z.columns, z.columns,
                  c.out<float>(0) + b * z.columns);
    }
    return Status::Ok();
  });
}

KernelResult MakePoolRowsGradientCpu(const KernelRequest& request) {
  const auto& pool = static_cast<const PoolRowsGradient&>(request.function);
  const Sequences z = MakeSequences(request.inputs[0].shape, pool.length());
  return MakeCall(request, [z, mean = pool.kind() == PoolKind::kMean](const Call& c) {
    if (mean) {
      MeanRowsGradient(z, c.in<float>(0), c.optional_in<std::int32_t>(1), c.out<float>(0));
      return Status::Ok();
    }
    std::fill_n(c.out<float>(0), z.count * z.length * z.columns, 0.0F);
    for (std::int64_t b = 0; b < z.count; ++b) {
      std::copy_n(c.in<float>(0) + b * z.columns, z.columns,
                  c.out<float>(0) + b * z.length * z.columns);
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
