#include "daemon/plan/pipeline_schedule.h"

#include <algorithm>
#include <optional>

namespace gaccd {
namespace {

// Actions are done one by one; each knows when it ended.
class Timeline {
 public:
  Timeline(PipelineSchedule schedule, std::span<const StageCost> stages,
           std::span<const std::int64_t> samples)
      : stages_(stages), samples_(samples), free_at_(stages.size()), next_(stages.size()) {
    const auto count = std::ssize(stages);
    for (std::int64_t s = 0; s < count; ++s) {
      actions_.push_back(PipelineActions(schedule, count, s, std::ssize(samples)));
    }
    forward_end_.resize(stages.size(), std::vector<std::optional<double>>(samples.size()));
    backward_end_ = forward_end_;
  }

  // Of all stages; no stage waits for ever, as a test of the schedules shows.
  double Run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        while (next_[s] < actions_[s].size() && Do(s, actions_[s][next_[s]])) {
          ++next_[s];
          moved = true;
        }
      }
    }
    return std::ranges::max(free_at_);
  }

 private:
  bool Do(std::size_t stage, const PipelineAction& action) {
    const auto i = static_cast<std::size_t>(action.micro_batch);
    const bool forward = action.kind == PipelineAction::Kind::kForward;
    std::optional<double> arrived = 0;
    if (forward && stage > 0) arrived = forward_end_[stage - 1][i];
    if (!forward) {
      arrived = stage + 1 < stages_.size() ? backward_end_[stage + 1][i] : forward_end_[stage][i];
    }
    if (!arrived) return false;
    const StageCost& cost = stages_[stage];
    free_at_[stage] = std::max(free_at_[stage], *arrived) +
                      (forward ? cost.forward : cost.backward) * static_cast<double>(samples_[i]);
    (forward ? forward_end_ : backward_end_)[stage][i] = free_at_[stage];
    return true;
  }

  std::span<const StageCost> stages_;
  std::span<const std::int64_t> samples_;
  std::vector<std::vector<PipelineAction>> actions_;
  std::vector<double> free_at_;
  std::vector<std::size_t> next_;
  std::vector<std::vector<std::optional<double>>> forward_end_;  // by stage and micro-batch
  std::vector<std::vector<std::optional<double>>> backward_end_;
};

}  // namespace

std::string_view Name(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::kGpipe ? "gpipe" : "one_f_one_b";
}

std::int64_t InFlight(PipelineSchedule schedule, std::int64_t stages, std::int64_t stage,
                      std::int64_t micro_batches) {
  const bool all = schedule == PipelineSchedule::kGpipe && stage + 1 < stages;
  return all ? micro_batches : std::min(micro_batches, stages - stage);
}

std::vector<PipelineAction> PipelineActions(PipelineSchedule schedule, std::int64_t stages,
                                            std::int64_t stage, std::int64_t micro_batches) {
  using Kind = PipelineAction::Kind;
  const std::int64_t in_flight = InFlight(schedule, stages, stage, micro_batches);
  std::vector<PipelineAction> actions;
  for (std::int64_t i = 0; i < micro_batches + in_flight; ++i) {
    if (i >= in_flight) actions.push_back({Kind::kBackward, i - in_flight});
    if (i < micro_batches) actions.push_back({Kind::kForward, i});
  }
  return actions;
}

PipelineTime PredictTime(PipelineSchedule schedule, std::span<const StageCost> stages,
                         std::span<const std::int64_t> samples) {
  PipelineTime time{.total = Timeline(schedule, stages, samples).Run()};
  double busy = 0;
  for (const StageCost& stage : stages) {
    for (const std::int64_t count : samples) {
      busy += (stage.forward + stage.backward) * static_cast<double>(count);
    }
  }
  if (time.total > 0) {
    time.idle_ratio = 1 - busy / (time.total * static_cast<double>(stages.size()));
  }
  return time;
}

}  // namespace gaccd
