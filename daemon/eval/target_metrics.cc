#include "daemon/eval/target_metrics.h"

#include <algorithm>
#include <cmath>

namespace gaccd {

double SquaredError(double error) { return error * error; }
double AbsoluteError(double error) { return std::abs(error); }

void MeanError::Add(const EvaluatedBatch& batch) {
  for (std::size_t i = 0; i < batch.targets.size(); ++i) {
    sums_[0] += function_(double{batch.targets[i]} - double{batch.prediction[i]});
  }
  sums_[1] += static_cast<double>(batch.targets.size());
}

double MeanError::Value() const { return sums_[0] / sums_[1]; }

R2::R2(std::span<const float> near)
    : near_(near.begin(), near.end()), sums_(near.size() * kSums + 1) {}

void R2::Add(const EvaluatedBatch& batch) {
  const std::size_t outputs = near_.size();
  for (std::size_t i = 0; i < batch.targets.size(); ++i) {
    const double t = batch.targets[i];
    const double d = t - near_[i % outputs];
    const double error = t - double{batch.prediction[i]};
    double* sums = &sums_[i % outputs * kSums];
    sums[0] += d;
    sums[1] += d * d;
    sums[2] += error * error;
  }
  sums_.back() += static_cast<double>(batch.targets.size() / outputs);
}

double R2::Value() const {
  double value = 0;
  for (std::size_t n = 0; n < near_.size(); ++n) {
    const double* sums = &sums_[n * kSums];
    const double spread = std::max(0.0, sums[1] - sums[0] * sums[0] / sums_.back());
    const double constant_value = sums[2] == 0 ? 1 : 0;
    value += spread == 0 ? constant_value : 1 - sums[2] / spread;
  }
  return value / static_cast<double>(near_.size());
}

}  // namespace gaccd
