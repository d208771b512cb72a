// Windows are processed value by value, with all channels of a value at once.
#include <algorithm>
#include <limits>

#include "collectives/base/simd.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/image/pool2d.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

struct ImageBatch {
  std::int64_t count = 0, channels = 0;
};

// y and pixel are replaced by x where it is larger, or NaN.
GACCD_SIMD_CLONES
void UpdateMax(const float* x, std::int32_t pixel, std::int64_t channels, float* y,
               std::int32_t* pixels) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t c = 0; c < channels; ++c) {
    const bool takes = !(x[c] <= y[c]) && (x[c] != x[c] || y[c] == y[c]);
    pixels[c] = takes ? pixel : pixels[c];
    y[c] = takes ? x[c] : y[c];
  }
}

// dx += dy where the maximum is at this pixel.
GACCD_SIMD_CLONES
void AddWhere(const float* dy, const std::int32_t* pixels, std::int32_t pixel,
              std::int64_t channels, float* dx) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t c = 0; c < channels; ++c) dx[c] += pixels[c] == pixel ? dy[c] : 0.0F;
}

GACCD_SIMD_CLONES
void AddTimes(const float* from, float factor, std::int64_t channels, float* to) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t c = 0; c < channels; ++c) to[c] += factor * from[c];
}

GACCD_SIMD_CLONES
void Scale(float* values, float factor, std::int64_t channels) {
  for (std::int64_t c = 0; c < channels; ++c) values[c] *= factor;
}

// Calls visit(window, pixel) for every value of every window of an image, in order.
template <typename Visit>
void ForWindow(const PoolWindows& w, std::int64_t p, std::int64_t q, const Visit& visit) {
  for (std::int64_t i = w.rows.Begin(p); i < w.rows.End(p); i += w.rows.dilation) {
    for (std::int64_t j = w.columns.Begin(q); j < w.columns.End(q); j += w.columns.dilation) {
      visit(i * w.columns.in + j);
    }
  }
}

// Calls visit(offset in x, offset in y, window row, window column) for every window of every image.
template <typename Visit>
void ForWindows(const PoolWindows& w, const ImageBatch& batch, const Visit& visit) {
  const std::int64_t image = w.rows.in * w.columns.in * batch.channels;
  std::int64_t y = 0;
  for (std::int64_t n = 0; n < batch.count; ++n) {
    for (std::int64_t p = 0; p < w.rows.out; ++p) {
      for (std::int64_t q = 0; q < w.columns.out; ++q, y += batch.channels) {
        visit(n * image, y, p, q);
      }
    }
  }
}

float WindowDivisor(const PoolWindows& w, std::int64_t p, std::int64_t q) {
  return static_cast<float>(w.rows.Count(p) * w.columns.Count(q));
}

ImageBatch ToImageBatch(const ValueSpec& images) { return {images.shape[0], images.shape[3]}; }

KernelResult MakeAverage(const KernelRequest& request, const PoolWindows& w) {
  return MakeCall(request, [w, batch = ToImageBatch(request.inputs[0])](const Call& c) {
    const std::int64_t channels = batch.channels;
    ForWindows(w, batch, [&](std::int64_t image, std::int64_t at, std::int64_t p, std::int64_t q) {
      float* y = c.out<float>(0) + at;
      std::fill_n(y, channels, 0.0F);
      ForWindow(w, p, q, [&](std::int64_t pixel) {
        AddTimes(c.in<float>(0) + image + pixel * channels, 1, channels, y);
      });
      Scale(y, 1 / WindowDivisor(w, p, q), channels);
    });
    return Status::Ok();
  });
}

}  // namespace

KernelResult MakeMaxPool2dCpu(const KernelRequest& request) {
  const PoolWindows windows =
      static_cast<const MaxPool2d&>(request.function).windows(request.inputs[0].shape);
  return MakeCall(request, [w = windows, batch = ToImageBatch(request.inputs[0])](const Call& c) {
    const std::int64_t channels = batch.channels;
    ForWindows(w, batch, [&](std::int64_t image, std::int64_t at, std::int64_t p, std::int64_t q) {
      float* y = c.out<float>(0) + at;
      std::int32_t* pixels = c.out<std::int32_t>(1) + at;
      // The first value counts even if it is -infinity.
      const std::int64_t first = w.rows.Begin(p) * w.columns.in + w.columns.Begin(q);
      std::fill_n(y, channels, -std::numeric_limits<float>::infinity());
      std::fill_n(pixels, channels, static_cast<std::int32_t>(first));
      ForWindow(w, p, q, [&](std::int64_t pixel) {
        UpdateMax(c.in<float>(0) + image + pixel * channels, static_cast<std::int32_t>(pixel),
                  channels, y, pixels);
      });
    });
    return Status::Ok();
  });
}

KernelResult MakeMaxPool2dGradientCpu(const KernelRequest& request) {
  const PoolWindows windows = static_cast<const MaxPool2dGradient&>(request.function).windows();
  const std::int64_t elements = Elements(request.outputs[0].shape);
  return MakeCall(request, [=, w = windows,
                            batch = ToImageBatch(request.inputs[0])](const Call& c) {
    const std::int64_t channels = batch.channels;
    std::fill_n(c.out<float>(0), elements, 0.0F);
    ForWindows(w, batch, [&](std::int64_t image, std::int64_t at, std::int64_t p, std::int64_t q) {
      ForWindow(w, p, q, [&](std::int64_t pixel) {
        AddWhere(c.in<float>(0) + at, c.in<std::int32_t>(1) + at, static_cast<std::int32_t>(pixel),
                 channels, c.out<float>(0) + image + pixel * channels);
      });
    });
    return Status::Ok();
  });
}

KernelResult MakeAvgPool2dCpu(const KernelRequest& request) {
  const auto& function = static_cast<const AvgPool2d&>(request.function);
  return MakeAverage(request, function.windows(request.inputs[0].shape));
}

KernelResult MakeAdaptiveAvgPool2dCpu(const KernelRequest& request) {
  const auto& function = static_cast<const AdaptiveAvgPool2d&>(request.function);
  return MakeAverage(request, function.windows(request.inputs[0].shape));
}

KernelResult MakeAvgPool2dGradientCpu(const KernelRequest& request) {
  const PoolWindows windows = static_cast<const AvgPool2dGradient&>(request.function).windows();
  const std::int64_t elements = Elements(request.outputs[0].shape);
  return MakeCall(request, [=, w = windows,
                            batch = ToImageBatch(request.inputs[0])](const Call& c) {
    const std::int64_t channels = batch.channels;
    std::fill_n(c.out<float>(0), elements, 0.0F);
    ForWindows(w, batch, [&](std::int64_t image, std::int64_t at, std::int64_t p, std::int64_t q) {
      const float share = 1 / WindowDivisor(w, p, q);
      ForWindow(w, p, q, [&](std::int64_t pixel) {
        AddTimes(c.in<float>(0) + at, share, channels, c.out<float>(0) + image + pixel * channels);
      });
    });
    return Status::Ok();
  });
}

}  // namespace gaccd
