// The gradient of one update without an engine, correct or with known mistakes of other programs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/data/prefetcher.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"

namespace gaccd {

// The gradient of one contrastive update without an engine, for selftests and tests: correct, or
// with known mistakes of other programs.
enum class ContrastiveMistake : std::uint8_t {
  kNone,
  kWorldFactor,     // gradients times the number of ranks
  kLocalNegatives,  // every rank only compares its own samples
  kScaleKFold,      // the gradient of the scale is counted once per micro-step
  kStaleRows,       // uses representations from the parameters before the last step
  kLastOnly,        // earlier micro-batches of an update are overwritten
};
inline constexpr ContrastiveMistake kContrastiveMistakes[] = {
    ContrastiveMistake::kWorldFactor, ContrastiveMistake::kLocalNegatives,
    ContrastiveMistake::kScaleKFold, ContrastiveMistake::kStaleRows, ContrastiveMistake::kLastOnly};
[[nodiscard]] std::string_view Name(ContrastiveMistake mistake);  // "world-size factor", ...

// Whether it changes the gradient of such an update: not with one rank, or one micro-step.
[[nodiscard]] bool HasEffect(ContrastiveMistake mistake, const Plan& plan);

// Collective. The gradient summed over the ranks. batches: those of the update in two passes.
Result<std::vector<float>> ContrastiveGradient(Communicator& comm, const Model& model,
                                               std::span<const float> parameters, const Plan& plan,
                                               Prefetcher& batches, ContrastiveMistake mistake);

// One update of a model with statistics of the whole update, without an engine, for selftests:
// correct, or with known mistakes of other programs.
enum class StatisticsMistake : std::uint8_t {
  kOwnRank,        // mean and variance of the samples of one rank
  kOwnMicroBatch,  // of one micro-batch
  // sums are divided by the count of full micro-batches instead of the actual count
  kPlannedCount,
  kConstant,          // the gradient treats them as constants
  kOwnGradient,       // sums of the gradient are those of one rank
  kEveryRank,         // every rank adds the reduced gradients of scale and shift
  kRunningEachStep,   // running statistics use those of every micro-step instead of the update
  kInvertedMomentum,  // the momentum is applied to the wrong share
};
inline constexpr StatisticsMistake kStatisticsMistakes[] = {
    StatisticsMistake::kOwnRank,         StatisticsMistake::kOwnMicroBatch,
    StatisticsMistake::kPlannedCount,    StatisticsMistake::kConstant,
    StatisticsMistake::kOwnGradient,     StatisticsMistake::kEveryRank,
    StatisticsMistake::kRunningEachStep, StatisticsMistake::kInvertedMomentum};
[[nodiscard]] std::string_view Name(StatisticsMistake mistake);

// Whether it changes such an update: it may not with one rank, with one micro-step, with full
// micro-batches, or if no gradient passes through the statistics, as in a first layer.
[[nodiscard]] bool HasEffect(StatisticsMistake mistake, const Plan& plan, const Model& model);

// The result of an update.
struct UpdateOutcome {
  std::vector<float> gradient;  // summed over the ranks
  // RunningValues() after it. Empty: the mistake does not affect them, or the model has none.
  std::vector<float> running;
};

// The running means and variances among the parameters that an update changes.
[[nodiscard]] std::vector<float> RunningValues(const Model& model,
                                               std::span<const float> parameters);

// Collective. REQUIRES: model.update_sums() > 0.
Result<UpdateOutcome> StatisticsUpdate(Communicator& comm, const Model& model,
                                       std::span<const float> parameters, const Plan& plan,
                                       Prefetcher& batches, StatisticsMistake mistake);

}  // namespace gaccd
