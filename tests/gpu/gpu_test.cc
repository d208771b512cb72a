#include "tests/gpu/gpu_test.h"

#include <cmath>

namespace gaccd {

double RelativeDifference(std::span<const float> found, std::span<const float> expected) {
  if (found.size() != expected.size()) return std::nan("");
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double d = static_cast<double>(found[i]) - expected[i];
    difference += d * d;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace gaccd
