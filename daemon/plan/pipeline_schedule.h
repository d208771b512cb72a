// In which order a stage of a pipeline computes the micro-batches of an update.
#pragma once

#include <cstdint>
#include <vector>

namespace gaccd {

enum class PipelineSchedule : std::uint8_t { kGpipe, kOneFOneB, kZeroBubble };

struct PipelineAction {
  // kWeights: the gradients of the parameters alone, of kZeroBubble; kBackward is the gradient of
  // the stage's input alone there.
  enum class Kind : std::uint8_t { kForward, kBackward, kWeights };
  Kind kind = Kind::kForward;
  std::int64_t micro_batch = 0;

  bool operator==(const PipelineAction&) const = default;
};

[[nodiscard]] std::vector<PipelineAction> PipelineActions(PipelineSchedule schedule,
                                                          std::int64_t stages, std::int64_t stage,
                                                          std::int64_t micro_batches);
// The most micro-batches whose activations a stage holds at once.
[[nodiscard]] std::int64_t InFlight(PipelineSchedule schedule, std::int64_t stages,
                                    std::int64_t stage, std::int64_t micro_batches);

}  // namespace gaccd
