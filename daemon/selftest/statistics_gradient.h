// One update of a model with statistics of the whole update, without an engine, for selftests: with
// the mistakes that other programs make.
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

enum class StatisticsMistake : std::uint8_t {
  kOwnRank,           // mean and variance of the samples of one rank
  kOwnMicroBatch,     // of one micro-batch
  kPlannedCount,      // sums are divided by what full micro-batches would have, not by the count
  kConstant,          // the gradient takes them for constants
  kOwnGradient,       // its sums are those of one rank
  kEveryRank,         // every rank adds the reduced gradients of scale and shift
  kRunningEachStep,   // running statistics take those of every micro-step, not of the update
  kInvertedMomentum,  // they keep the share that is to be new
};
inline constexpr StatisticsMistake kStatisticsMistakes[] = {
    StatisticsMistake::kOwnRank,         StatisticsMistake::kOwnMicroBatch,
    StatisticsMistake::kPlannedCount,    StatisticsMistake::kConstant,
    StatisticsMistake::kOwnGradient,     StatisticsMistake::kEveryRank,
    StatisticsMistake::kRunningEachStep, StatisticsMistake::kInvertedMomentum};
[[nodiscard]] std::string_view Name(StatisticsMistake mistake);

// Whether it changes such an update: it may not with one rank, with one micro-step, with full
// micro-batches, or where no gradient goes through the statistics, as of a first layer.
[[nodiscard]] bool HasEffect(StatisticsMistake mistake, const Plan& plan, const Model& model);

// What an update gives.
struct UpdateOutcome {
  std::vector<float> gradient;  // summed over the ranks
  // RunningValues() after it. Empty: the mistake is not about them, or the model has none.
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
