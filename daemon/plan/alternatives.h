// Alternatives to a plan: the other roundings, and the nearest targets, node counts and
// micro-batches with which the target divides evenly, each with its error and its cost.
//
// The target divides evenly if target % W == 0: every rank takes the same number of samples. Cost
// is time per update, in samples of the slowest rank:
//   cost = Load_max(alternative) / Load_max(exact plan of the request)
// For example, ceil at 30 x 8 x 10 -> 3072 costs 20 / 13 = 1.54. If the ranks have different
// speeds, cost is computed from Plan::slowest_time(), and even division is not searched.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/plan/plan.h"

namespace gaccd {

struct Alternative {
  Plan plan;
  double error_ratio = 0;  // (effective batch - requested target) / requested target
  double cost_ratio = 1;
};

struct Alternatives {
  bool divides = false;         // the target divides evenly over the ranks
  double requested_cost = 1;    // cost of the requested plan
  std::int64_t nodes_from = 0;  // node counts in [nodes_from, nodes_to] were searched
  std::int64_t nodes_to = 0;

  std::vector<Alternative> modes;          // the three other roundings
  std::vector<Alternative> equal_loads;    // if plan.uneven(): the plan without speeds
  std::vector<Alternative> targets;        // the two multiples of W around the target, exact
  std::vector<Alternative> nodes;          // at most 3, the nearest that divide evenly; ascending
  std::vector<Alternative> micro_batches;  // see FindAlternatives; ascending
};

// The last three lists contain only improvements:
//   target % W != 0   targets, nodes; the micro-batch that saves one micro-step
//   target % W == 0   the nearest micro-batches below and above (from half to twice the requested
//                     one) that fill every micro-step; none if the requested one does
// Alternatives that overflow are omitted. At most 2^18 node counts are tried, so the time is
// bounded (about 1 ms) for every request.
[[nodiscard]] Alternatives FindAlternatives(const Plan& plan);

}  // namespace gaccd
