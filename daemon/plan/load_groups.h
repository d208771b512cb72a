// The ranks of a plan by how many samples they take.
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
  double least_speed = 1;  // of these ranks
  double most_speed = 1;
};

// The largest load first. One or two groups unless plan.uneven().
[[nodiscard]] std::vector<LoadGroup> LoadGroups(const Plan& plan);

// For a line of events, bounded whatever the world is.
// The largest load first, "160x14,80x9": 160 ranks take 14 samples each. Where there are more than
// kMaxLoadsInText loads, "40x9-12" are ranks with 9 to 12.
inline constexpr std::size_t kMaxLoadsInText = 16;
[[nodiscard]] std::string LoadsText(const Plan& plan);
// SpeedsText() of its ranks, "240x1" where they are alike; empty when that is longer than `limit`.
[[nodiscard]] std::string SpeedsText(const Plan& plan, std::size_t limit);

}  // namespace gaccd
