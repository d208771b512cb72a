// The metrics of targets: see metric.h.
#pragma once

#include <array>

#include "daemon/eval/metric.h"

namespace gaccd {

[[nodiscard]] double Square(double error);
[[nodiscard]] double Size(double error);

// The mean over all outputs of a function of t - y.
class MeanOfErrors final : public Metric {
 public:
  using OfError = double (*)(double error);
  explicit MeanOfErrors(OfError of_error) : of_error_(of_error) {}
  void Add(const EvaluatedBatch& batch) override;
  [[nodiscard]] std::span<double> sums() override { return sums_; }
  [[nodiscard]] double Value() const override;

 private:
  OfError of_error_;
  std::array<double, 2> sums_ = {};  // of the function, how many
};

class R2 final : public Metric {
 public:
  // One value near the targets for every output: what sums of squares lose to rounding grows with
  // the distance of the targets from it.
  explicit R2(std::span<const float> near);
  void Add(const EvaluatedBatch& batch) override;
  [[nodiscard]] std::span<double> sums() override { return sums_; }
  [[nodiscard]] double Value() const override;

 private:
  // With d = t - near: of d, of d^2, of (t - y)^2.
  static constexpr std::size_t kSums = 3;
  std::vector<double> near_;
  std::vector<double> sums_;  // [outputs, kSums], then the number of samples
};

}  // namespace gaccd
