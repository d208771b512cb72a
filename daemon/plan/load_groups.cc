#include "daemon/plan/load_groups.h"

#include <algorithm>
#include <functional>
#include <map>

#include "collectives/base/strings.h"
#include "daemon/plan/speeds.h"

namespace gaccd {

std::vector<LoadGroup> LoadGroups(const Plan& plan) {
  if (!plan.uneven() && !plan.any_split()) {
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
    group.min_speed = std::min(group.min_speed, speed);
    group.max_speed = std::max(group.max_speed, speed);
  }
  std::vector<LoadGroup> groups;
  for (const auto& [load, group] : by_load) groups.push_back(group);
  return groups;
}

std::string LoadsText(const Plan& plan) {
  const std::vector<LoadGroup> groups = LoadGroups(plan);
  const std::size_t together = (groups.size() - 1) / kMaxLoadsInText + 1;
  std::string text;
  for (std::size_t first = 0; first < groups.size(); first += together) {
    const std::size_t last = std::min(first + together, groups.size()) - 1;
    std::int64_t ranks = 0;
    for (std::size_t i = first; i <= last; ++i) ranks += groups[i].ranks;
    text += StrCat(text.empty() ? "" : ",", ranks, "x", groups[last].samples);
    if (last > first) text += StrCat("-", groups[first].samples);
  }
  return text;
}

std::string SpeedsText(const Plan& plan, std::size_t limit) {
  std::string text = plan.uneven() ? SpeedsText(plan.request().speeds) : StrCat(plan.world(), "x1");
  return text.size() <= limit ? text : "";
}

}  // namespace gaccd
