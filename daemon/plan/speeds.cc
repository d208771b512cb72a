#include "daemon/plan/speeds.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "collectives/base/strings.h"

namespace gaccd {

namespace {

double ComputeTime(std::int64_t samples, double speed) {
  return static_cast<double>(samples) / speed;
}

// The largest number of samples, up to `limit`, that a rank of this speed computes within `time`.
std::int64_t MaxWithin(double time, double speed, std::int64_t limit) {
  auto most = static_cast<std::int64_t>(std::min(time * speed, static_cast<double>(limit)));
  while (most < limit && ComputeTime(most + 1, speed) <= time) ++most;
  while (most > 0 && ComputeTime(most, speed) > time) --most;
  return most;
}

bool FitsWithin(double time, std::span<const double> speeds, std::int64_t samples) {
  std::int64_t left = samples;
  for (const double speed : speeds) {
    left -= MaxWithin(time, speed, left);
    if (left == 0) return true;
  }
  return false;
}

// The smallest double within which the ranks can compute all samples.
double SmallestTime(std::span<const double> speeds, std::int64_t samples) {
  const auto ranks = static_cast<std::int64_t>(speeds.size());
  double too_short = 0;
  double enough = ComputeTime((samples - 1) / ranks + 1, *std::ranges::min_element(speeds));
  for (;;) {
    const double middle = too_short + (enough - too_short) / 2;
    if (middle <= too_short || middle >= enough) return enough;
    (FitsWithin(middle, speeds, samples) ? enough : too_short) = middle;
  }
}

// The fewest micro-steps if rank r takes at most most[r] samples.
std::int64_t FewestMicroSteps(std::span<const std::int64_t> most, std::int64_t samples,
                              std::int64_t micro_batch) {
  const auto suffices = [&](std::int64_t steps) {
    std::int64_t left = samples;
    for (const std::int64_t load : most) {
      const bool whole = load / micro_batch < steps;
      left -= std::min(left, whole ? load : steps * micro_batch);
    }
    return left == 0;
  };
  std::int64_t too_few = 0;
  std::int64_t enough = (*std::ranges::max_element(most) - 1) / micro_batch + 1;
  while (enough - too_few > 1) {
    const std::int64_t middle = too_few + (enough - too_few) / 2;
    (suffices(middle) ? enough : too_few) = middle;
  }
  return enough;
}

// Removes `excess` samples from the loads, from the fastest ranks first, evenly among ranks of
// equal speed, which have equal loads.
void ReduceFastestLoads(std::span<const double> speeds, std::int64_t excess,
                        std::vector<std::int64_t>* loads) {
  std::vector<std::size_t> ranks(speeds.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::ranges::stable_sort(ranks, std::greater{}, [&](std::size_t rank) { return speeds[rank]; });
  for (std::size_t first = 0; first < ranks.size() && excess > 0;) {
    std::size_t end = first;
    while (end < ranks.size() && speeds[ranks[end]] == speeds[ranks[first]]) ++end;
    const auto alike = static_cast<std::int64_t>(end - first);
    const std::int64_t all = alike * (*loads)[ranks[first]];
    const std::int64_t kept = all - std::min(all, excess);
    excess -= all - kept;
    for (std::int64_t i = 0; i < alike; ++i) {
      (*loads)[ranks[first + static_cast<std::size_t>(i)]] =
          kept / alike + (i + 1) * (kept % alike) / alike - i * (kept % alike) / alike;
    }
    first = end;
  }
}

}  // namespace

Status CheckSpeeds(std::span<const double> speeds) {
  for (std::size_t rank = 0; rank < speeds.size(); ++rank) {
    const double speed = speeds[rank];
    if (speed >= kMinSpeed && speed <= kMaxSpeed) continue;
    return {ErrorKind::kConfig, StrCat("speed of rank ", rank, ": expected a number from ",
                                       kMinSpeed, " to ", kMaxSpeed, ", found ", speed)};
  }
  return Status::Ok();
}

SpeedSplit SplitBySpeed(std::span<const double> speeds, std::int64_t samples,
                        std::int64_t micro_batch) {
  const double time = SmallestTime(speeds, samples);
  SpeedSplit split;
  for (const double speed : speeds) split.loads.push_back(MaxWithin(time, speed, samples));
  split.micro_steps = FewestMicroSteps(split.loads, samples, micro_batch);
  std::int64_t excess = -samples;
  for (std::int64_t& load : split.loads) {
    if (load / micro_batch >= split.micro_steps) load = split.micro_steps * micro_batch;
    excess += load;
  }
  ReduceFastestLoads(speeds, excess, &split.loads);
  return split;
}

std::string SpeedsText(std::span<const double> speeds) {
  std::string text;
  for (std::size_t first = 0; first < speeds.size();) {
    std::size_t end = first;
    while (end < speeds.size() && speeds[end] == speeds[first]) ++end;
    text += StrCat(text.empty() ? "" : ",", end - first, "x", NumberText(speeds[first]));
    first = end;
  }
  return text;
}

Result<double> ParseSpeed(std::string_view text) {
  const auto speed = ToNumber<double>(text);
  if (speed && *speed >= kMinSpeed && *speed <= kMaxSpeed) return *speed;
  return Status(ErrorKind::kConfig, StrCat("expected a speed from ", kMinSpeed, " to ", kMaxSpeed,
                                           ", found '", text, "'"));
}

Result<std::vector<double>> ParseSpeeds(std::string_view text, std::int64_t ranks) {
  std::vector<double> speeds;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    const std::size_t times = std::min(part.find('x'), part.size());
    const std::int64_t count = ToNumber<std::int64_t>(part.substr(0, times)).value_or(0);
    if (times == part.size() || count < 1 || count > ranks - std::ssize(speeds)) {
      return Status(ErrorKind::kConfig,
                    StrCat("speeds: expected NxS for at most ", ranks, " ranks, found '", part,
                           "' after ", speeds.size(), " of them"));
    }
    GACCD_ASSIGN_OR_RETURN(const double speed, ParseSpeed(part.substr(times + 1)));
    speeds.insert(speeds.end(), static_cast<std::size_t>(count), speed);
    at = end + 1;
  }
  return speeds;
}

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
