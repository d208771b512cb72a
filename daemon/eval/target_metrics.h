// Metrics for targets, defined in metric.h.
#pragma once

#include <array>

#include "daemon/eval/metric.h"

namespace gaccd {

[[nodiscard]] double SquaredError(double error);
[[nodiscard]] double AbsoluteError(double error);

// The mean over all outputs of a function of t - y.
class MeanError final : public Metric {
 public:
  using ErrorFunction = double (*)(double error);
  explicit MeanError(ErrorFunction function) : function_(function) {}
  void Add(const EvaluatedBatch& batch) override;
  [[nodiscard]] std::span<double> sums() override { return sums_; }
  [[nodiscard]] double Value() const override;

 private:
  ErrorFunction function_;
  std::array<double, 2> sums_ = {};  // function values, their number
};

class R2 final : public Metric {
 public:
  // near: a value near the targets of every output. The rounding errors of the sums of squares grow
  // with the distance of the targets from it.
  explicit R2(std::span<const float> near);
  void Add(const EvaluatedBatch& batch) override;
  [[nodiscard]] std::span<double> sums() override { return sums_; }
  [[nodiscard]] double Value() const override;

 private:
  // Sums of d, d^2 and (t - y)^2, where d = t - near.
  static constexpr std::size_t kSums = 3;
  std::vector<double> near_;
  std::vector<double> sums_;  // [outputs, kSums], then the number of samples
};

}  // namespace gaccd
