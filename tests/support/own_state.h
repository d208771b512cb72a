// An optimiser and the memory of its state.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "daemon/optim/optimizer.h"

namespace gaccd::tests {

struct OwnState {
  std::vector<float> state;
  std::unique_ptr<Optimizer> optimizer;
  Optimizer* operator->() const { return optimizer.get(); }
};

inline Result<OwnState> MakeOptimizer(const OptimizerSpec& spec, const OptimizerRanges& ranges) {
  const std::int64_t elements = StateElements(spec, ranges.elements());
  std::vector<float> state(static_cast<std::size_t>(elements > 0 ? elements : 0));
  GACCD_ASSIGN_OR_RETURN(auto optimizer, gaccd::MakeOptimizer(spec, ranges, state));
  return OwnState{std::move(state), std::move(optimizer)};
}

}  // namespace gaccd::tests
