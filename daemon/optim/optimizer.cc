#include "daemon/optim/optimizer.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/optim/rules.h"

namespace gaccd {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, and an AVX-512 register

Result<std::shared_ptr<float>> AllocateState(std::int64_t elements) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  const std::size_t padded = (bytes / kAlignment + 1) * kAlignment;
  std::shared_ptr<float> memory(static_cast<float*>(std::aligned_alloc(kAlignment, padded)),
                                [](float* state) { std::free(state); });
  if (memory == nullptr) {
    return Status(ErrorKind::kOs,
                  StrCat("optimizer: no memory for ", bytes, " bytes of optimiser state"));
  }
  std::memset(memory.get(), 0, padded);
  return memory;
}

}  // namespace

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

Result<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerSpec& spec,
                                                 OptimizerRanges ranges) {
  GACCD_RETURN_IF_ERROR(CheckOptimizer(spec, ranges));
  const std::int64_t elements = StateElements(spec, ranges.elements());
  GACCD_ASSIGN_OR_RETURN(std::shared_ptr<float> memory, AllocateState(elements));
  const std::span<float> state(memory.get(), static_cast<std::size_t>(elements));
  GACCD_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer,
                         MakeOptimizer(spec, std::move(ranges), state));
  optimizer->KeepAlive(std::move(memory));
  return optimizer;
}

}  // namespace gaccd
