#include "daemon/engine/noise_scale.h"

namespace gaccd {

std::optional<GradientNoise> EstimateNoise(double gradient_norm, double squares, std::int64_t ranks,
                                           std::int64_t samples) {
  if (ranks < 2) return std::nullopt;
  const auto batch = static_cast<double>(samples);
  const auto count = static_cast<double>(ranks);
  const double of_all = gradient_norm * gradient_norm;
  const double of_ranks = squares * batch;
  return GradientNoise{.variance = (of_ranks - of_all) * batch / (count - 1),
                       .square = (count * of_all - of_ranks) / (count - 1)};
}

void NoiseScale::Add(const GradientNoise& measured) {
  constexpr double kKept = 0.9;
  sum_.variance = kKept * sum_.variance + measured.variance;
  sum_.square = kKept * sum_.square + measured.square;
  weight_ = kKept * weight_ + 1;
  ++measured_;
}

GradientNoise NoiseScale::average() const {
  if (measured_ == 0) return {};
  return {.variance = sum_.variance / weight_, .square = sum_.square / weight_};
}

std::optional<double> NoiseScale::samples() const {
  const GradientNoise found = average();
  if (!(found.square > 0)) return std::nullopt;
  return found.variance / found.square;
}

}  // namespace gaccd
