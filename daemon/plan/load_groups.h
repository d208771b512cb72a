// Groups the ranks of a plan by their number of samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/plan/plan.h"

namespace gaccd {

struct LoadGroup {
  std::int64_t samples = 0;
  std::int64_t ranks = 0;
  double min_speed = 1;  // minimum over these ranks
  double max_speed = 1;
};

// In descending order of load. One or two groups unless plan.uneven() or any_split().
[[nodiscard]] std::vector<LoadGroup> LoadGroups(const Plan& plan);

// Text of bounded length for events, in descending order of load. "160x14,80x9": 160 ranks take 14
// samples each. If there are more than kMaxLoadsInText loads, "40x9-12" are ranks with 9 to 12.
inline constexpr std::size_t kMaxLoadsInText = 16;
[[nodiscard]] std::string LoadsText(const Plan& plan);
// SpeedsText() of the ranks, "240x1" if they are equal; empty if it is longer than `limit`.
[[nodiscard]] std::string SpeedsText(const Plan& plan, std::size_t limit);

}  // namespace gaccd
