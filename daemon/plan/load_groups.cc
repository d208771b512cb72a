#include "daemon/plan/load_groups.h"

#include <algorithm>
#include <functional>
#include <map>

#include "collectives/base/strings.h"

namespace gaccd {

std::vector<LoadGroup> LoadGroups(const Plan& plan) {
  if (!plan.uneven()) {
    std::vector<LoadGroup> groups{{.samples = plan.ranks_hi_samples(), .ranks = plan.ranks_hi()}};
    if (plan.ranks_lo() > 0) {
      groups.push_back({.samples = plan.ranks_lo_samples(), .ranks = plan.ranks_lo()});
    }
    return groups;
  }
  std::map<std::int64_t, LoadGroup, std::greater<>> by_load;
  for (std::int64_t rank = 0; rank < plan.world(); ++rank) {
    const double speed = plan.Speed(rank);
    LoadGroup& group =
        by_load.try_emplace(plan.Load(rank), LoadGroup{plan.Load(rank), 0, speed, speed})
            .first->second;
    ++group.ranks;
    group.least_speed = std::min(group.least_speed, speed);
    group.most_speed = std::max(group.most_speed, speed);
  }
  std::vector<LoadGroup> groups;
  for (const auto& [load, group] : by_load) groups.push_back(group);
  return groups;
}

std::string LoadsText(const Plan& plan) {
  std::string text;
  for (std::int64_t first = 0; first < plan.world();) {
    std::int64_t end = first;
    while (end < plan.world() && plan.Load(end) == plan.Load(first)) ++end;
    text += StrCat(text.empty() ? "" : ",", end - first, "x", plan.Load(first));
    first = end;
  }
  return text;
}

}  // namespace gaccd
