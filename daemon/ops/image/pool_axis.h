// PoolAxis: the windows of a pooling along one dimension of images, for the loops of the CPU and
// the kernels of the GPU.
#pragma once

#include <cstdint>

#include "daemon/tensor/host_device.h"

namespace gaccd {

struct PoolAxis {
  std::int64_t in = 0, out = 0;                                    // values, windows
  std::int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;  // unless adaptive
  bool adaptive = false;
  bool counts_padding = false;

  // Where window o begins: its values are begin, begin + dilation, ... below end; all in [0, in).
  [[nodiscard]] GACCD_HOST_DEVICE std::int64_t Begin(std::int64_t o) const {
    if (adaptive) return o * in / out;
    const std::int64_t begin = o * stride - padding;
    return begin >= 0 ? begin : begin + (dilation - 1 - begin) / dilation * dilation;
  }
  [[nodiscard]] GACCD_HOST_DEVICE std::int64_t End(std::int64_t o) const {
    if (adaptive) return ((o + 1) * in + out - 1) / out;
    const std::int64_t end = o * stride - padding + dilation * (kernel - 1) + 1;
    return end < in ? end : in;
  }
  // What the window counts in an average. REQUIRES: dilation 1.
  [[nodiscard]] GACCD_HOST_DEVICE std::int64_t Count(std::int64_t o) const {
    return counts_padding ? kernel : End(o) - Begin(o);
  }
  // Windows with value i are among [First(i), Last(i)].
  [[nodiscard]] GACCD_HOST_DEVICE std::int64_t First(std::int64_t i) const {
    if (adaptive) return i * out / in;
    const std::int64_t beyond = i + padding - dilation * (kernel - 1) - 1;  // it ends before i
    return beyond < 0 ? 0 : beyond / stride + 1;
  }
  [[nodiscard]] GACCD_HOST_DEVICE std::int64_t Last(std::int64_t i) const {
    const std::int64_t last = adaptive ? ((i + 1) * out - 1) / in : (i + padding) / stride;
    return last < out ? last : out - 1;
  }
};

struct PoolWindows {
  PoolAxis rows, columns;
};

}  // namespace gaccd
