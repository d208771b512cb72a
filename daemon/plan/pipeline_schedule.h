// In which order the stages of a pipeline compute the micro-batches of an update, and how long that
// takes. Pure functions.
//
// A stage computes the forward of every micro-batch and its backward, each once. The forward of a
// micro-batch waits for that of the stage before, its backward for that of the stage after. The
// last stage has nobody to wait for: it goes back at once.
//
// ZERO_BUBBLE is ZB-H1 of "Zero Bubble Pipeline Parallelism" (Qi et al., 2023): the backward is
// divided. Its first part makes the gradient that the stage before waits for, the second one those
// of weights, which nobody waits for: stage s computes it after s more backwards, in the time in
// which it would wait at the end. The first stage sends no gradient and divides nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gaccd {

// kGpipe: all forwards, then all backwards. kOneFOneB: a backward as soon as there is one.
// kZeroBubble: the same, divided.
enum class PipelineSchedule : std::uint8_t { kGpipe, kOneFOneB, kZeroBubble };
// "gpipe", "one_f_one_b", "zero_bubble"
[[nodiscard]] std::string_view Name(PipelineSchedule schedule);

// Whether the backward of a stage is divided: kWeights comes apart from kBackward.
[[nodiscard]] bool DividesBackward(PipelineSchedule schedule, std::int64_t stage);

struct PipelineAction {
  enum class Kind : std::uint8_t { kForward, kBackward, kWeights };
  Kind kind = Kind::kForward;
  std::int64_t micro_batch = 0;

  bool operator==(const PipelineAction&) const = default;
};

// In their order, of one stage.
[[nodiscard]] std::vector<PipelineAction> PipelineActions(PipelineSchedule schedule,
                                                          std::int64_t stages, std::int64_t stage,
                                                          std::int64_t micro_batches);
// The most micro-batches whose activations a stage holds at once.
[[nodiscard]] std::int64_t InFlight(PipelineSchedule schedule, std::int64_t stages,
                                    std::int64_t stage, std::int64_t micro_batches);

// Of one sample, in any unit of time.
struct StageCost {
  double forward = 0;
  double backward = 0;  // all of it
  double weights = 0;   // of that, what kWeights computes
};

struct PipelineTime {
  double total = 0;       // until the last backward is over
  double idle_ratio = 0;  // the bubble: the share of the stages' time in which they wait
};

// samples: of each micro-batch; one of 0 takes no time. Messages take none either.
[[nodiscard]] PipelineTime PredictTime(PipelineSchedule schedule, std::span<const StageCost> stages,
                                       std::span<const std::int64_t> samples);

}  // namespace gaccd
