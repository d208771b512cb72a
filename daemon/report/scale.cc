#include "daemon/report/scale.h"

#include <algorithm>
#include <cmath>

namespace gaccd {
namespace {

// The smallest round number that is not below.
double RoundUp(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// Powers of ten; of less than kFewDecades also 2 and 5 times them.
std::vector<double> LogarithmicTicks(const AxisScale& scale, int about) {
  constexpr double kFewDecades = 2.3;
  const double decades = std::log10(scale.high / scale.low);
  const std::vector<double> factors =
      decades < kFewDecades ? std::vector<double>{1, 2, 5} : std::vector<double>{1};
  const int stride = std::max(1, static_cast<int>(decades / about));
  std::vector<double> ticks;
  for (int power = static_cast<int>(std::floor(std::log10(scale.low)));
       power <= static_cast<int>(std::ceil(std::log10(scale.high))); power += stride) {
    for (const double factor : factors) {
      const double tick = factor * std::pow(10.0, power);
      if (tick >= scale.low && tick <= scale.high) ticks.push_back(tick);
    }
  }
  return ticks;
}

}  // namespace

double AxisScale::At(double value) const {
  if (!logarithmic) return (value - low) / (high - low);
  return std::log(std::max(value, low) / low) / std::log(high / low);
}

AxisScale ScaleFor(const std::vector<double>& values, bool may_be_logarithmic) {
  if (values.empty()) return {};
  const auto [least, most] = std::ranges::minmax(values);
  if (may_be_logarithmic && least > 0 && most / least >= 30) {
    return {.low = least / 1.1, .high = most * 1.1, .logarithmic = true};
  }
  // One value, or values beyond what can be subtracted, have a scale, too.
  const double room = std::max(0.06 * (most / 2 - least / 2) * 2, std::abs(most) * 1e-3);
  const bool flat = least == most;
  if (!(room > 0) || !std::isfinite(most - least + 2 * room)) {
    return {.low = -1, .high = 1, .flat = flat};
  }
  const double low = least >= 0 && least - room < 0 ? 0 : least - room;
  return {.low = low, .high = most + room, .flat = flat};
}

std::vector<double> Ticks(const AxisScale& scale, int about) {
  if (scale.logarithmic) return LogarithmicTicks(scale, about);
  if (scale.flat) return {scale.low / 2 + scale.high / 2};
  std::vector<double> ticks;
  const double distance = RoundUp((scale.high - scale.low) / about);
  for (double number = std::ceil(scale.low / distance); number * distance <= scale.high; ++number) {
    ticks.push_back(number * distance);
    if (ticks.size() > 100) break;
  }
  return ticks;
}

}  // namespace gaccd
