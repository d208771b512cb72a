// Shared by the 2-d pooling kernels: sizes of a launch in 32-bit integers, and the position of a
// thread in the images.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/image/divisor.h"
#include "daemon/ops/image/pool2d.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd::pool2d {

using Axis = BasicPoolAxis<std::int32_t, Divisor>;

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

// One launch of a kernel.
struct PoolPart {
  PoolSize size;
  LaunchShape shape;
  std::int64_t x, y;  // offsets of its images
};

// Calls launch(T(), width, call, part) for as many images as one launch can process; T: the type of
// the first input, width: the values that a thread processes at once, a constant. gradient: x is
// written instead of y.
template <typename LaunchPart>
KernelResult MakePooling(const CudaRequest& request, const PoolWindows& windows, const char* what,
                         bool gradient, const LaunchPart& launch) {
  const std::int64_t images = request.inputs[0].shape[0];
  const std::int64_t channels = request.inputs[0].shape[3];
  const std::int64_t image = windows.rows.in * windows.columns.in * channels;
  const std::int64_t pooled_image = windows.rows.out * windows.columns.out * channels;
  const std::int64_t largest = std::max(image, pooled_image);
  if (largest > kMaxVectors || !IsNarrow(windows.rows) || !IsNarrow(windows.columns)) {
    return Status(ErrorKind::kConfig,
                  StrCat(what, ": expected images of at most ", kMaxVectors,
                         " values, and windows in that range, on the GPU, found ", largest));
  }
  return MakeTypedCall(request, [=, on = request.on](auto t, const CallKernel::Call& c) {
    const auto run = [&](auto width) {
      const std::int64_t of_image = (gradient ? image : pooled_image) / width;
      for (std::int64_t first = 0, count = 0; first < images; first += count) {
        count = std::min(images - first, kMaxVectors / of_image);
        const PoolSize size{Narrow(windows.rows), Narrow(windows.columns),
                            static_cast<std::int32_t>(channels),
                            Divisor(static_cast<std::int32_t>(channels / width)),
                            static_cast<std::int32_t>(count * of_image)};
        const LaunchShape shape{on.Blocks(count * of_image, kThreads), kThreads};
        GACCD_RETURN_IF_ERROR(
            launch(t, width, c, PoolPart{size, shape, first * image, first * pooled_image}));
      }
      return Status::Ok();
    };
    constexpr int kVector = kVectorWidth<decltype(t)>;
    return channels % kVector == 0 && IsVectorAligned(c)
               ? run(std::integral_constant<int, kVector>())
               : run(std::integral_constant<int, 1>());
  });
}

}  // namespace gaccd::pool2d
