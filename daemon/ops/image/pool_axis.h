// PoolAxis: the pooling windows along one dimension of images, shared by CPU and GPU.
#pragma once

#include <cstdint>

#include "daemon/tensor/host_device.h"

namespace gaccd {

// By: Int, or a type by which an Int can be divided faster.
template <typename Int, typename By>
struct BasicPoolAxis {
  By in{1}, out{1};  // number of values, number of windows
  Int kernel = 1;    // kernel to dilation are not used if adaptive
  By stride{1};
  Int padding = 0;
  By dilation{1};
  bool adaptive = false;
  bool counts_padding = false;

  // Start of window o: its values are begin, begin + dilation, ... below end; all in [0, in).
  [[nodiscard]] GACCD_HOST_DEVICE Int Begin(Int o) const {
    if (adaptive) return o * in / out;
    const Int begin = o * stride - padding;
    return begin >= 0 ? begin : begin + (dilation - 1 - begin) / dilation * dilation;
  }
  [[nodiscard]] GACCD_HOST_DEVICE Int End(Int o) const {
    if (adaptive) return ((o + 1) * in + out - 1) / out;
    const Int end = o * stride - padding + dilation * (kernel - 1) + 1;
    return end < in ? end : Int{in};
  }
  // Divisor of the window in an average. REQUIRES: dilation 1.
  [[nodiscard]] GACCD_HOST_DEVICE Int Count(Int o) const {
    return counts_padding ? kernel : End(o) - Begin(o);
  }
  // Windows that contain value i are among [First(i), Last(i)].
  [[nodiscard]] GACCD_HOST_DEVICE Int First(Int i) const {
    if (adaptive) return i * out / in;
    // windows up to here end before i
    const Int beyond = i + padding - dilation * (kernel - 1) - 1;
    return beyond < 0 ? 0 : beyond / stride + 1;
  }
  [[nodiscard]] GACCD_HOST_DEVICE Int Last(Int i) const {
    const Int last = adaptive ? ((i + 1) * out - 1) / in : (i + padding) / stride;
    return last < out ? last : out - 1;
  }
};
using PoolAxis = BasicPoolAxis<std::int64_t, std::int64_t>;

struct PoolWindows {
  PoolAxis rows, columns;
};

}  // namespace gaccd
