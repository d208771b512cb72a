#include "daemon/optim/optimizer.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/optim/rules.h"

namespace gaccd {
Status CheckOptimizer(const OptimizerSpec& spec, const OptimizerRanges& ranges) {
  const std::int64_t parameters = ranges.elements();
  if (parameters < 0 || parameters > std::numeric_limits<std::int64_t>::max() / 16) {
    return {ErrorKind::kInternal,
            StrCat("optimizer: the number of parameters must be 0..2^59, found ", parameters)};
  }
  if (!(spec.lr >= 0) || !std::isfinite(spec.lr)) {
    return {ErrorKind::kConfig, StrCat("optimizer: lr must be >= 0 and finite, found ", spec.lr)};
  }
  return std::visit(Overloaded{[](const SgdSpec& sgd) { return CheckSgd(sgd); },
                               [](const AdamWSpec& adamw) { return CheckAdamW(adamw); }},
                    spec.kind);
}

std::int64_t StateElements(const OptimizerSpec& spec, std::int64_t parameters) {
  return std::visit(
      Overloaded{[&](const SgdSpec& sgd) { return sgd.momentum == 0 ? 0 : parameters; },
                 [&](const AdamWSpec&) { return 2 * parameters; }},
      spec.kind);
}

Result<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerSpec& spec, OptimizerRanges ranges,
                                                 std::span<float> state) {
  GACCD_RETURN_IF_ERROR(CheckOptimizer(spec, ranges));
  const std::int64_t expected = StateElements(spec, ranges.elements());
  if (std::ssize(state) != expected) {
    return Status(ErrorKind::kInternal, StrCat("optimizer: expected ", expected,
                                               " values of state, found ", state.size()));
  }
  return std::visit(
      Overloaded{
          [&](const SgdSpec& sgd) { return MakeSgd(sgd, std::move(ranges), state); },
          [&](const AdamWSpec& adamw) { return MakeAdamW(adamw, std::move(ranges), state); }},
      spec.kind);
}

}  // namespace gaccd
