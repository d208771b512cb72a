// Metrics for targets, defined in metric.h.
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
