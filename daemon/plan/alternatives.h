// What else could be asked for: the other roundings, and the nearest targets, node counts and
// micro-batches at which the target divides evenly, each with its error and its cost.
//
// The target divides over the ranks when target % W == 0: every rank takes the same number of
// samples. Cost is time per update, counted in samples of the slowest rank:
//   cost = Load_max(alternative) / Load_max(exact plan of the request)
// so ceil at 30 x 8 x 10 -> 3072 costs 20 / 13 = 1.54. Where the ranks have different speeds, cost
// is that of Plan::slowest_time(), and what would divide evenly is not asked.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/plan/plan.h"

namespace gaccd {

struct Alternative {
  Plan plan;
  double error_ratio = 0;  // (its effective batch - the asked target) / the asked target
  double cost_ratio = 1;
};

struct Alternatives {
  bool divides = false;         // the target over the ranks
  double asked_cost = 1;        // of the plan that was asked for
  std::int64_t nodes_from = 0;  // node counts were searched in [nodes_from, nodes_to]
  std::int64_t nodes_to = 0;

  std::vector<Alternative> modes;          // the three other roundings
  std::vector<Alternative> equal_loads;    // plan.uneven(): the plan without speeds
  std::vector<Alternative> targets;        // the two multiples of W around the target, exact
  std::vector<Alternative> nodes;          // at most 3, the nearest that divide; ascending
  std::vector<Alternative> micro_batches;  // see FindAlternatives; ascending
};

// The last three lists hold only what helps:
//   target % W != 0   targets, nodes; the micro-batch that saves one micro-step
//   target % W == 0   the nearest micro-batches below and above (from half to twice the asked one)
//                     that fill every micro-step; none when the asked one does
// An alternative that overflows is left out. At most 2^18 node counts are tried, so the time is
// bounded (about 1 ms) for every request.
[[nodiscard]] Alternatives FindAlternatives(const Plan& plan);

}  // namespace gaccd
