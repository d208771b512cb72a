#include "daemon/plan/alternatives.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace gaccd {
namespace {

constexpr std::int64_t kSearchLimit = std::int64_t{1} << 17;  // in each direction
constexpr std::size_t kMaxNodeCounts = 3;

// Half and twice a count, at least 1, at most kSearchLimit away from it.
std::int64_t SearchFrom(std::int64_t count) {
  return std::max({std::int64_t{1}, count / 2 + count % 2, count - kSearchLimit});
}
std::int64_t SearchTo(std::int64_t count) {
  const std::int64_t room = std::numeric_limits<std::int64_t>::max() - count;
  return count + std::min({count, kSearchLimit, room});
}

class Finder {
 public:
  explicit Finder(const Plan& plan)
      : asked_(plan), exact_load_(LargestExactLoad(plan)), exact_time_(ExactTime(plan)) {}

  [[nodiscard]] double Cost(const Plan& plan) const { return plan.slowest_time() / exact_time_; }

  [[nodiscard]] double Error(const Plan& plan) const {
    const auto target = static_cast<double>(asked_.request().target_batch);
    return static_cast<double>(plan.effective_batch() - asked_.request().target_batch) / target;
  }

  void Add(const PlanRequest& request, std::vector<Alternative>& to) const {
    Result<Plan> plan = Plan::Make(request);
    if (plan.ok()) to.push_back({*plan, Error(*plan), Cost(*plan)});
  }

  [[nodiscard]] std::vector<Alternative> Modes() const {
    std::vector<Alternative> found;
    for (const Rounding rounding :
         {Rounding::kExact, Rounding::kFloor, Rounding::kNearest, Rounding::kCeil}) {
      if (rounding == asked_.request().rounding) continue;
      PlanRequest request = asked_.request();
      request.rounding = rounding;
      Add(request, found);
    }
    return found;
  }

  [[nodiscard]] std::vector<Alternative> EqualLoads() const {
    std::vector<Alternative> found;
    PlanRequest request = asked_.request();
    request.speeds.clear();
    Add(request, found);
    for (Alternative& one : found) one.cost_ratio = asked_.equal_loads_time() / exact_time_;
    return found;
  }

  [[nodiscard]] std::vector<Alternative> Targets() const {
    std::vector<Alternative> found;
    PlanRequest request = ExactRequest();
    const std::int64_t below = request.target_batch / asked_.pipelines() * asked_.pipelines();
    for (const bool above : {false, true}) {
      if (above && below > std::numeric_limits<std::int64_t>::max() - asked_.pipelines()) continue;
      request.target_batch = above ? below + asked_.pipelines() : below;
      if (request.target_batch > 0) Add(request, found);
    }
    return found;
  }

  [[nodiscard]] std::vector<Alternative> NodeCounts(std::int64_t from, std::int64_t to) const {
    PlanRequest request = ExactRequest();
    const std::int64_t common = std::gcd(request.gpus_per_node, request.stages);
    // smallest number of nodes with whole pipelines
    const std::int64_t together = request.stages / common;
    const std::int64_t pipelines = request.gpus_per_node / common;  // pipelines in these nodes
    if (request.target_batch % pipelines != 0) return {};
    const std::int64_t rest = request.target_batch / pipelines;
    const std::int64_t asked = request.nodes;
    std::vector<Alternative> found;
    const auto try_count = [&](std::int64_t nodes) {
      if (found.size() == kMaxNodeCounts || nodes % together != 0) return;
      if (rest % (nodes / together) != 0) return;
      request.nodes = nodes;
      Add(request, found);
    };
    for (std::int64_t distance = 1; distance <= std::max(asked - from, to - asked); ++distance) {
      if (distance <= asked - from) try_count(asked - distance);
      if (distance <= to - asked) try_count(asked + distance);
    }
    std::sort(found.begin(), found.end(), [](const Alternative& a, const Alternative& b) {
      return a.plan.request().nodes < b.plan.request().nodes;
    });
    return found;
  }

  [[nodiscard]] std::vector<Alternative> FullMicroBatches() const {
    PlanRequest request = ExactRequest();
    const std::int64_t load = exact_load_;
    const std::int64_t asked = request.micro_batch;
    if (load % asked == 0) return {};
    std::vector<Alternative> found;
    const auto take_if_it_divides = [&](std::int64_t micro) {
      if (load % micro != 0) return false;
      request.micro_batch = micro;
      Add(request, found);
      return true;
    };
    const std::int64_t start = std::min(asked - 1, load);
    const std::int64_t below = start - SearchFrom(start);
    for (std::int64_t i = 0; i <= below && !take_if_it_divides(start - i); ++i) {
    }
    const std::int64_t above = std::min(load, SearchTo(asked)) - asked;
    for (std::int64_t i = 1; i <= above && !take_if_it_divides(asked + i); ++i) {
    }
    return found;
  }

  [[nodiscard]] std::vector<Alternative> OneStepLess() const {
    std::vector<Alternative> found;
    PlanRequest request = ExactRequest();
    const std::int64_t steps = (exact_load_ - 1) / request.micro_batch;  // k - 1 of the exact plan
    if (steps == 0) return found;
    request.micro_batch = (exact_load_ - 1) / steps + 1;
    Add(request, found);
    return found;
  }

 private:
  static std::int64_t LargestExactLoad(const Plan& plan) {
    return (plan.request().target_batch - 1) / plan.pipelines() + 1;
  }

  static double ExactTime(const Plan& plan) {
    if (!plan.uneven()) return static_cast<double>(LargestExactLoad(plan));
    const Result<Plan> exact = plan.ForSamples(plan.request().target_batch);
    return (exact.ok() ? *exact : plan).slowest_time();
  }

  [[nodiscard]] PlanRequest ExactRequest() const {
    PlanRequest request = asked_.request();
    request.rounding = Rounding::kExact;
    return request;
  }

  const Plan& asked_;
  std::int64_t exact_load_;
  double exact_time_;
};

}  // namespace

Alternatives FindAlternatives(const Plan& plan) {
  const Finder finder(plan);
  Alternatives found;
  found.divides = plan.request().target_batch % plan.pipelines() == 0;
  found.requested_cost = finder.Cost(plan);
  found.nodes_from = SearchFrom(plan.request().nodes);
  found.nodes_to = SearchTo(plan.request().nodes);
  found.modes = finder.Modes();
  if (plan.uneven()) {
    found.equal_loads = finder.EqualLoads();
  } else if (found.divides) {
    found.micro_batches = finder.FullMicroBatches();
  } else {
    found.targets = finder.Targets();
    found.nodes = finder.NodeCounts(found.nodes_from, found.nodes_to);
    found.micro_batches = finder.OneStepLess();
  }
  return found;
}

}  // namespace gaccd
