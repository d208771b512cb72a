// The order in which pipeline stages compute the micro-batches of an update, and the predicted
// time. Pure functions.
//
// A stage computes the forward and the backward of every micro-batch once. The forward of a
// micro-batch waits for the forward of the previous stage, its backward for the backward of the
// next stage. The last stage starts the backward at once.
//
// ZERO_BUBBLE is ZB-H1 of "Zero Bubble Pipeline Parallelism" (Qi et al., 2023): the backward is
// divided. Its first part computes the gradient that the previous stage waits for. Its second part
// computes the gradients of weights, which no stage waits for: stage s computes it s backwards
// later, in the time in which it would wait at the end. The first stage sends no gradient and
// divides nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// kGpipe: all forwards, then all backwards. kOneFOneB: a backward as soon as one is possible.
// kZeroBubble: the same with a divided backward.
enum class PipelineSchedule : std::uint8_t { kGpipe, kOneFOneB, kZeroBubble };
// "gpipe", "one_f_one_b", "zero_bubble"
[[nodiscard]] std::string_view Name(PipelineSchedule schedule);

// Whether the backward of a stage is divided: kWeights is separate from kBackward.
[[nodiscard]] bool DividesBackward(PipelineSchedule schedule, std::int64_t stage);

struct PipelineAction {
  enum class Kind : std::uint8_t { kForward, kBackward, kWeights };
  Kind kind = Kind::kForward;
  std::int64_t micro_batch = 0;

  bool operator==(const PipelineAction&) const = default;
};

// The actions of one stage, in order.
[[nodiscard]] std::vector<PipelineAction> PipelineActions(PipelineSchedule schedule,
                                                          std::int64_t stages, std::int64_t stage,
                                                          std::int64_t micro_batches);
// The maximum number of micro-batches whose activations a stage holds at once.
[[nodiscard]] std::int64_t InFlight(PipelineSchedule schedule, std::int64_t stages,
                                    std::int64_t stage, std::int64_t micro_batches);

// Per sample, in any unit of time.
struct StageCost {
  double forward = 0;
  double backward = 0;  // including `weights`
  double weights = 0;   // the part computed by kWeights
};

struct PipelineTime {
  double total = 0;       // until the end of the last backward
  double idle_ratio = 0;  // the bubble: the share of the stages' time spent waiting
};

// samples: of each micro-batch; one without samples takes no time. Messages take no time.
[[nodiscard]] PipelineTime PredictTime(PipelineSchedule schedule, std::span<const StageCost> stages,
                                       std::span<const std::int64_t> samples);

// BalanceStages: divides the consecutive blocks of a model into the stages of a pipeline.

// Number of blocks of each stage, at least one, such that the cost of the most expensive stage is
// minimal; among equal divisions, the one with the smallest first stages. costs: by block, not
// negative. least_first: number of blocks that the first stage needs. kConfig: more stages than
// blocks.
Result<std::vector<std::int64_t>> BalanceStages(std::span<const double> costs, std::int64_t stages,
                                                std::int64_t least_first = 1);

}  // namespace gaccd
