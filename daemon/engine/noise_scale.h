// The gradient noise scale (McCandlish et al., arXiv:1812.06162): up to about this many samples, a
// larger batch saves updates. Estimated from the gradients of each rank's samples and from their
// sum, without extra passes.
//
//   s_r  the sum of the gradients of the n_r samples of rank r
//   B    sum_r n_r
//   R    the number of ranks with n_r > 0
//   G  = sum_r s_r / B, the gradient of the update
//   Q  = sum_r |s_r|^2 / n_r / B
//
// With the mean mu and the covariance S of the gradients of single samples
//
//   E Q = |mu|^2 + R tr(S) / B,  E |G|^2 = |mu|^2 + tr(S) / B
//
// so these estimates are unbiased for any n_r:
//
//   tr(S) = (Q - |G|^2) B / (R - 1),  |mu|^2 = (R |G|^2 - Q) / (R - 1)
//
// The noise scale is tr(S) / |mu|^2. One update is a noisy sample, so numerator and denominator are
// averaged separately.
#pragma once

#include <cstdint>
#include <optional>

namespace gaccd {

struct GradientNoise {
  double variance = 0;  // tr(S)
  double square = 0;    // |mu|^2; the estimate may be negative
};

// squares: sum_r |s_r / B|^2 / n_r. Empty if fewer than two ranks have samples.
[[nodiscard]] std::optional<GradientNoise> EstimateNoise(double gradient_norm, double squares,
                                                         std::int64_t ranks, std::int64_t samples);

class NoiseScale {
 public:
  void Add(const GradientNoise& measured);

  [[nodiscard]] std::int64_t measured() const { return measured_; }  // number of measurements
  // Exponential average: each measurement weighs 0.9 of the next one.
  [[nodiscard]] GradientNoise average() const;
  // The noise scale, in samples. Empty if the average of |mu|^2 is not positive.
  [[nodiscard]] std::optional<double> samples() const;

 private:
  GradientNoise sum_;  // weighted
  double weight_ = 0;
  std::int64_t measured_ = 0;
};

}  // namespace gaccd
