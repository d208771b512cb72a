// The axes of a chart. Pure; thread-safe.
#pragma once

#include <vector>

namespace gaccd {

// Maps low..high to 0..1, straight or by logarithms.
struct AxisScale {
  double low = 0;
  double high = 1;
  bool logarithmic = false;
  bool flat = false;  // of one value, which is the middle

  [[nodiscard]] double At(double value) const;
};

// A scale with room for these values, finite, in any order. Logarithmic where `may_be_logarithmic`,
// all are above 0 and the largest one is 30 times the smallest.
[[nodiscard]] AxisScale ScaleFor(const std::vector<double>& values, bool may_be_logarithmic);

// Round values (1, 2 or 5 times a power of ten) on the scale, at least two, about `about`; of a
// flat scale its value alone.
[[nodiscard]] std::vector<double> Ticks(const AxisScale& scale, int about);

}  // namespace gaccd
