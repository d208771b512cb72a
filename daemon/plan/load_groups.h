// The ranks of a plan by how many samples they take.
#pragma once

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

// "160x14,80x9": the samples of consecutive ranks.
[[nodiscard]] std::string LoadsText(const Plan& plan);

}  // namespace gaccd
