// Shared by the 2-d pooling kernels: sizes of a launch in 32-bit integers, and the position of a
// thread in the images.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/image/divisor.h"
#include "daemon/ops/image/pool2d.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd::pool2d {

using Axis = PoolAxisOf<std::int32_t, Divisor>;

// Vectors written by one launch, counted in 32 bits including the step of a grid.
inline constexpr std::int64_t kMaxVectors = std::int64_t{1} << 30;

struct PoolSize {
  Axis rows, columns;
  std::int32_t channels;
  Divisor of_pixel;      // vectors per pixel
  std::int32_t vectors;  // number of written vectors

  [[nodiscard]] __device__ std::int64_t image() const {
    return std::int64_t{rows.in * columns.in * channels};
  }
  [[nodiscard]] __device__ std::int64_t pooled_image() const {
    return std::int64_t{rows.out * columns.out * channels};
  }
};

// Position of vector i in images of [rows, columns].
struct Place {
  std::int32_t n, row, column, channel;

  __device__ Place(std::int32_t i, Divisor rows, Divisor columns, Divisor of_pixel, int width) {
    const std::int32_t pixel = i / of_pixel;
    const std::int32_t image_row = pixel / columns;
    channel = (i - pixel * of_pixel) * width;
    column = pixel - image_row * columns;
    n = image_row / rows;
    row = image_row - n * rows;
  }
};

inline Axis Narrow(const PoolAxis& axis) {
  const auto narrow = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  return {Divisor(narrow(axis.in)),
          Divisor(narrow(axis.out)),
          narrow(axis.kernel),
          Divisor(narrow(axis.stride)),
          narrow(axis.padding),
          Divisor(narrow(axis.dilation)),
          axis.adaptive,
          axis.counts_padding};
}

// Whether everything that PoolAxis computes for the axis fits into 32 bits.
inline bool IsNarrow(const PoolAxis& axis) {
  constexpr std::int64_t kMost = 1 << 28;
  if (std::max({axis.in, axis.out, axis.stride, axis.padding, axis.dilation}) > kMost) return false;
  return !axis.adaptive || (axis.in + 1) * (axis.out + 1) < 2 * kMost;
}

// Arguments of a kernel.
struct Pooling {
  KernelStream on;
  const char* what;
  PoolWindows windows;
  std::int64_t images, channels;
  bool gradient;  // x is written instead of y

  [[nodiscard]] std::int64_t image() const {
    return windows.rows.in * windows.columns.in * channels;
  }
  [[nodiscard]] std::int64_t pooled_image() const {
    return windows.rows.out * windows.columns.out * channels;
  }
  [[nodiscard]] bool TakesVectors(int width, std::initializer_list<const void*> pointers) const {
    return channels % width == 0 && std::ranges::all_of(pointers, IsVectorAligned);
  }
};

inline Result<Pooling> PoolingOf(const CudaRequest& request, const PoolWindows& windows,
                                 const char* what, bool gradient) {
  const Shape& shape = request.inputs[0].shape;
  const Pooling pooling{request.on, what, windows, shape[0], shape[3], gradient};
  const std::int64_t largest = std::max(pooling.image(), pooling.pooled_image());
  if (largest > kMaxVectors || !IsNarrow(windows.rows) || !IsNarrow(windows.columns)) {
    return Status(ErrorKind::kConfig,
                  StrCat(what, ": expected images of at most ", kMaxVectors,
                         " values, and windows in that range, on the GPU, found ", largest));
  }
  return pooling;
}

// Calls start(size, shape, offset in x, offset in y) for as many images as one launch can process.
template <typename Start>
Status InParts(const Pooling& pooling, int width, const Start& start) {
  const std::int64_t of_image =
      (pooling.gradient ? pooling.image() : pooling.pooled_image()) / width;
  for (std::int64_t first = 0, images = 0; first < pooling.images; first += images) {
    images = std::min(pooling.images - first, kMaxVectors / of_image);
    const PoolSize size{Narrow(pooling.windows.rows), Narrow(pooling.windows.columns),
                        static_cast<std::int32_t>(pooling.channels),
                        Divisor(static_cast<std::int32_t>(pooling.channels / width)),
                        static_cast<std::int32_t>(images * of_image)};
    const LaunchShape shape{pooling.on.Blocks(images * of_image, kThreads), kThreads};
    GACCD_RETURN_IF_ERROR(
        start(size, shape, first * pooling.image(), first * pooling.pooled_image()));
  }
  return Status::Ok();
}

}  // namespace gaccd::pool2d
