#include "daemon/plan/pipeline_schedule.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "collectives/base/strings.h"

namespace gaccd {

namespace {

// Executes the actions one by one and records when each ended.
class Timeline {
 public:
  Timeline(PipelineSchedule schedule, std::span<const StageCost> stages,
           std::span<const std::int64_t> samples)
      : schedule_(schedule),
        stages_(stages),
        samples_(samples),
        free_at_(stages.size()),
        next_(stages.size()) {
    const auto count = std::ssize(stages);
    for (std::int64_t s = 0; s < count; ++s) {
      actions_.push_back(PipelineActions(schedule, count, s, std::ssize(samples)));
    }
    forward_end_.resize(stages.size(), std::vector<std::optional<double>>(samples.size()));
    backward_end_ = forward_end_;
  }

  // Runs all stages. No stage waits forever, as a test of the schedules shows.
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
    using Kind = PipelineAction::Kind;
    const StageCost& all = stages_[stage];
    const double later =
        DividesBackward(schedule_, static_cast<std::int64_t>(stage)) ? all.weights : 0;
    std::optional<double> arrived = 0;
    double cost = later;
    if (action.kind == Kind::kForward) {
      if (stage > 0) arrived = forward_end_[stage - 1][i];
      cost = all.forward;
    } else if (action.kind == Kind::kBackward) {
      arrived = stage + 1 < stages_.size() ? backward_end_[stage + 1][i] : forward_end_[stage][i];
      cost = all.backward - later;
    }
    if (!arrived) return false;
    free_at_[stage] = std::max(free_at_[stage], *arrived) + cost * static_cast<double>(samples_[i]);
    if (action.kind == Kind::kForward) forward_end_[stage][i] = free_at_[stage];
    if (action.kind == Kind::kBackward) backward_end_[stage][i] = free_at_[stage];
    return true;
  }

  PipelineSchedule schedule_;
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
  switch (schedule) {
    case PipelineSchedule::kGpipe:
      return "gpipe";
    case PipelineSchedule::kOneFOneB:
      return "one_f_one_b";
    case PipelineSchedule::kZeroBubble:
      return "zero_bubble";
  }
  return "";
}

bool DividesBackward(PipelineSchedule schedule, std::int64_t stage) {
  return schedule == PipelineSchedule::kZeroBubble && stage > 0;
}

std::int64_t InFlight(PipelineSchedule schedule, std::int64_t stages, std::int64_t stage,
                      std::int64_t micro_batches) {
  if (schedule == PipelineSchedule::kZeroBubble) return std::min(micro_batches, stages);
  const bool all = schedule == PipelineSchedule::kGpipe && stage + 1 < stages;
  return all ? micro_batches : std::min(micro_batches, stages - stage);
}

std::vector<PipelineAction> PipelineActions(PipelineSchedule schedule, std::int64_t stages,
                                            std::int64_t stage, std::int64_t micro_batches) {
  using Kind = PipelineAction::Kind;
  const bool divides = DividesBackward(schedule, stage);
  const std::int64_t ahead =  // forwards before the first backward
      schedule == PipelineSchedule::kZeroBubble ? std::min(micro_batches, stages - stage)
                                                : InFlight(schedule, stages, stage, micro_batches);
  std::vector<PipelineAction> actions;
  for (std::int64_t i = 0; i < micro_batches + ahead; ++i) {
    const std::int64_t back = i - ahead;
    if (back >= 0) actions.push_back({Kind::kBackward, back});
    if (divides && back >= stage) actions.push_back({Kind::kWeights, back - stage});
    if (i < micro_batches) actions.push_back({Kind::kForward, i});
  }
  for (std::int64_t i = std::max<std::int64_t>(0, micro_batches - stage);
       divides && i < micro_batches; ++i) {
    actions.push_back({Kind::kWeights, i});
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

// least[s][b]: the cost of the most expensive of s + 1 stages that contain the first b blocks.
Result<std::vector<std::int64_t>> BalanceStages(std::span<const double> costs, std::int64_t stages,
                                                std::int64_t least_first) {
  const std::size_t blocks = costs.size();
  const auto count = static_cast<std::size_t>(stages);
  if (stages > 1 && stages + least_first > std::ssize(costs) + 1) {
    return Status(ErrorKind::kConfig,
                  StrCat("pipeline: expected at most one stage a block, found ", stages,
                         " stages and ", blocks, blocks == 1 ? " block" : " blocks",
                         least_first > 1 ? StrCat("; the first stage needs ", least_first,
                                                  " of them to have something to train")
                                         : "",
                         "; a block ends where one value continues and the parameters used so far "
                         "are declared before all others: use fewer stages, or declare parameters "
                         "(in PyTorch: modules) in the order of their use and export again"));
  }
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> least(count, std::vector<double>(blocks + 1, kNever));
  std::vector<std::vector<std::size_t>> before(count, std::vector<std::size_t>(blocks + 1));
  std::vector<double> sum(blocks + 1);
  for (std::size_t b = 0; b < blocks; ++b) sum[b + 1] = sum[b] + costs[b];
  for (auto b = static_cast<std::size_t>(least_first); b <= blocks; ++b) least[0][b] = sum[b];
  for (std::size_t s = 1; s < count; ++s) {
    for (std::size_t b = s + 1; b <= blocks; ++b) {
      for (std::size_t split = s; split < b; ++split) {
        const double most = std::max(least[s - 1][split], sum[b] - sum[split]);
        if (most >= least[s][b]) continue;
        least[s][b] = most;
        before[s][b] = split;
      }
    }
  }
  std::vector<std::int64_t> divided(count);
  std::size_t end = blocks;
  for (std::size_t s = count; s-- > 0;) {
    divided[s] = static_cast<std::int64_t>(end - before[s][end]);
    end = before[s][end];
  }
  return divided;
}

}  // namespace gaccd
