// The gradient noise scale (McCandlish et al., arXiv:1812.06162): up to about this number of
// samples a larger batch saves updates. Measured from what the ranks have anyway: the gradients of
// their own samples, and the sum.
//
//   s_r  the sum of the gradients of the n_r samples of rank r; B = sum_r n_r; R: ranks with n_r >
//   0 G  = sum_r s_r / B, the gradient of the update Q  = sum_r |s_r|^2 / n_r / B E Q = |mu|^2 + R
//   tr(S) / B,  E |G|^2 = |mu|^2 + tr(S) / B, with the mean mu and the covariance S of the
//   gradients of single samples; hence, without bias for any n_r, tr(S) = (Q - |G|^2) B / (R - 1),
//   |mu|^2 = (R |G|^2 - Q) / (R - 1)
//
// The noise scale is tr(S) / |mu|^2. One update says little: numerator and denominator are
// averaged apart.
#pragma once

#include <cstdint>
#include <optional>

namespace gaccd {

struct GradientNoise {
  double variance = 0;  // tr(S)
  double square = 0;    // |mu|^2; an estimate, which may be negative
};

// squares: sum_r |s_r / B|^2 / n_r. Nothing with less than two ranks that have samples.
[[nodiscard]] std::optional<GradientNoise> EstimateNoise(double gradient_norm, double squares,
                                                         std::int64_t ranks, std::int64_t samples);

class NoiseScale {
 public:
  void Add(const GradientNoise& measured);

  [[nodiscard]] std::int64_t measured() const { return measured_; }  // how often
  // The averages of what was added; each measurement weighs 0.9 of the next one.
  [[nodiscard]] GradientNoise average() const;
  // Samples. Nothing while |mu|^2 is not above 0.
  [[nodiscard]] std::optional<double> samples() const;

 private:
  GradientNoise sum_;  // weighted
  double weight_ = 0;
  std::int64_t measured_ = 0;
};

}  // namespace gaccd
