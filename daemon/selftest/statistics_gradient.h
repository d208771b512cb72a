// The gradient of one update of a model with statistics of the whole update, without an engine, for
// selftests: with the mistakes that other programs make.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/data/prefetcher.h"
#include "daemon/model/model.h"
#include "daemon/plan/plan.h"

namespace gaccd {

enum class StatisticsMistake : std::uint8_t {
  kOwnRank,        // mean and variance of the samples of one rank
  kOwnMicroBatch,  // of one micro-batch
  kConstant,       // the gradient takes them for constants
  kOwnGradient,    // its sums are those of one rank
};
inline constexpr StatisticsMistake kStatisticsMistakes[] = {
    StatisticsMistake::kOwnRank, StatisticsMistake::kOwnMicroBatch, StatisticsMistake::kConstant,
    StatisticsMistake::kOwnGradient};
[[nodiscard]] std::string_view Name(StatisticsMistake mistake);

// Whether it changes the gradient of such an update: it may not with one rank, with one micro-step,
// or where no gradient goes through the statistics, as of a first layer.
[[nodiscard]] bool HasEffect(StatisticsMistake mistake, const Plan& plan, const Model& model);

// Collective. The gradient summed over the ranks. REQUIRES: model.update_sums() > 0.
Result<std::vector<float>> StatisticsGradient(Communicator& comm, const Model& model,
                                              std::span<const float> parameters, const Plan& plan,
                                              Prefetcher& batches, StatisticsMistake mistake);

}  // namespace gaccd
