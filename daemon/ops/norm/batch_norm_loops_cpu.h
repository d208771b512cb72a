// CPU loops of batch norms over some rows of one group, with factors by channel.
#pragma once

#include <cstdint>

#include "daemon/tensor/float_types.h"

namespace gaccd::batch_norm {

struct Rows {
  std::int64_t rows;
  std::int64_t channels;
};

// Factors by channel; [channels] each.
//   y = (x - mean) scale + shift,  dx = dy scale - (x - mean) slope - offset
// The mean is in f32; its rounding error, which may be many standard deviations, is included in the
// shift or offset.
struct Factors {
  float* mean;
  float* scale;
  float* shift;
  float* slope;
  float* offset;

  static constexpr std::int64_t kCount = 5;
  Factors(void* scratch, std::int64_t channels)
      : mean(static_cast<float*>(scratch)),
        scale(mean + channels),
        shift(scale + channels),
        slope(shift + channels),
        offset(slope + channels) {}

  [[nodiscard]] float Norm(float x, std::int64_t c) const {
    return (x - mean[c]) * scale[c] + shift[c];
  }
};

// sums [2, channels]: adds x and x^2.
void SumChannels(const float* x, Rows size, double* sums);
// sums: adds dy and dy (x - mean). relu: dy counts as 0 where y <= 0.
void SumGradients(const float* dy, const float* x, Rows size, const Factors& factors, bool relu,
                  double* sums);

// y, plus the residual if it is not null, and its relu. The result may alias x.
void Normalize(const float* x, const float* residual, Rows size, const Factors& factors, bool relu,
               float* y);
void Normalize(const float* x, const float* residual, Rows size, const Factors& factors, bool relu,
               Bf16* y);

// dx, which may alias dy. relu: dy counts as 0 where y <= 0.
void InputGradients(const float* dy, const float* x, Rows size, const Factors& factors, bool relu,
                    float* dx);
void InputGradients(const float* dy, const float* x, Rows size, const Factors& factors, bool relu,
                    Bf16* dx);

}  // namespace gaccd::batch_norm
