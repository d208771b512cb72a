#include "daemon/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/base/strings.h"
#include "daemon/plan/speeds.h"

namespace gaccd {
namespace {

// Products of two 64-bit counts are computed in 128 bits and checked before they are narrowed.
__extension__ using Wide = __int128;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

Status RequireAtLeast(std::string_view name, std::int64_t value, std::int64_t least) {
  if (value >= least) return {};
  return {ErrorKind::kUsage, StrCat(name, " must be at least ", least, ", found ", value)};
}

Result<std::int64_t> Product(std::string_view a_name, std::int64_t a, std::string_view b_name,
                             std::int64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  if (product <= kMax) return static_cast<std::int64_t>(product);
  return Status(ErrorKind::kConfig, StrCat(a_name, " ", a, " * ", b_name, " ", b,
                                           " does not fit 63 bits (at most ", kMax, ")"));
}

std::int64_t RoundHalfUp(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>((2 * static_cast<Wide>(a) + b) / (2 * static_cast<Wide>(b)));
}

std::int64_t MicroSteps(Rounding rounding, std::int64_t target, std::int64_t base) {
  switch (rounding) {
    case Rounding::kExact:  // ceil(ceil(target / W) / b) == ceil(target / (W b))
    case Rounding::kCeil:
      return CeilDiv(target, base);
    case Rounding::kFloor:
      return std::max<std::int64_t>(1, target / base);
    case Rounding::kNearest:
      return std::max<std::int64_t>(1, RoundHalfUp(target, base));
  }
  return 1;
}

}  // namespace

std::string_view Name(Rounding rounding) {
  switch (rounding) {
    case Rounding::kExact:
      return "exact";
    case Rounding::kFloor:
      return "floor";
    case Rounding::kCeil:
      return "ceil";
    case Rounding::kNearest:
      return "nearest";
  }
  return "?";
}

std::string_view Name(Recompute recompute) {
  return recompute == Recompute::kBlocks ? "blocks" : "none";
}

std::string_view Name(Bits bits) { return bits == Bits::kAnySplit ? "any-split" : "this-split"; }

std::string_view Name(LrRule rule) {
  switch (rule) {
    case LrRule::kNone:
      return "none";
    case LrRule::kLinear:
      return "linear";
    case LrRule::kSqrt:
      return "sqrt";
  }
  return "?";
}

Result<Plan> Plan::Make(const PlanRequest& request) {
  GACCD_RETURN_IF_ERROR(RequireAtLeast("nodes", request.nodes, 1));
  GACCD_RETURN_IF_ERROR(RequireAtLeast("GPUs per node", request.gpus_per_node, 1));
  GACCD_RETURN_IF_ERROR(RequireAtLeast("micro-batch", request.micro_batch, 1));
  GACCD_RETURN_IF_ERROR(RequireAtLeast("target batch", request.target_batch, 1));
  GACCD_RETURN_IF_ERROR(RequireAtLeast("reference batch", request.reference_batch, 0));

  Plan plan;
  plan.request_ = request;
  GACCD_ASSIGN_OR_RETURN(plan.world_,
                         Product("nodes", request.nodes, "GPUs per node", request.gpus_per_node));
  GACCD_RETURN_IF_ERROR(plan.CheckStages());
  GACCD_ASSIGN_OR_RETURN(plan.base_batch_,
                         Product(request.stages > 1 ? "pipelines" : "ranks", plan.pipelines(),
                                 "micro-batch", request.micro_batch));
  plan.accum_steps_ = MicroSteps(request.rounding, request.target_batch, plan.base_batch_);
  if (request.rounding == Rounding::kExact) {
    plan.effective_batch_ = request.target_batch;
  } else {
    GACCD_ASSIGN_OR_RETURN(plan.effective_batch_, Product("micro-steps", plan.accum_steps_,
                                                          "base batch", plan.base_batch_));
  }
  GACCD_RETURN_IF_ERROR(plan.SplitUnevenly());
  if (plan.any_split()) {
    GACCD_RETURN_IF_ERROR(plan.CheckAnySplit());
    plan.accum_steps_ = CeilDiv(plan.micro_batches(), plan.world_);
  }
  return plan;
}

Status Plan::CheckAnySplit() const {
  const auto refuse = [](const auto&... found) -> Status {
    return {ErrorKind::kConfig, StrCat("--bits=any-split: ", found...)};
  };
  if (request_.rounding != Rounding::kExact) {
    return refuse("the batch must not depend on the ranks, expected --rounding=exact, found ",
                  Name(request_.rounding));
  }
  if (request_.stages > 1) return refuse("pipelines are not supported with it yet");
  if (uneven()) return refuse("ranks of different speeds are not supported with it yet");
  if (micro_batches() > kMaxExactMicroBatches) {
    return refuse("expected at most ", kMaxExactMicroBatches, " micro-batches in an update, found ",
                  micro_batches(), "; set a larger --micro-batch");
  }
  return Status::Ok();
}

std::int64_t Plan::micro_batches() const { return CeilDiv(effective_batch_, request_.micro_batch); }

std::int64_t Plan::FirstMicroBatch(std::int64_t rank) const {
  return static_cast<std::int64_t>((Wide{rank} * micro_batches() + world_ - 1) / world_);
}

std::int64_t Plan::SamplesBefore(std::int64_t micro_batch) const {
  return static_cast<std::int64_t>(Wide{micro_batch} * effective_batch_ / micro_batches());
}

Status Plan::CheckStages() const {
  const std::int64_t stages = request_.stages;
  GACCD_RETURN_IF_ERROR(RequireAtLeast("stages", stages, 1));
  if (world_ % stages != 0) {
    return {ErrorKind::kConfig, StrCat("pipeline: expected a multiple of ", stages,
                                       " ranks, one for each stage, found ", world_)};
  }
  if (stages == 1 || request_.speeds.empty()) return Status::Ok();
  return {ErrorKind::kConfig, "pipeline: ranks of different speeds are not supported with it yet"};
}

Status Plan::SplitUnevenly() {
  std::vector<double>& speeds = request_.speeds;
  if (speeds.empty()) return Status::Ok();
  if (std::ssize(speeds) != world_) {
    return {ErrorKind::kConfig,
            StrCat("speeds: expected one for each of ", world_, " ranks, found ", speeds.size())};
  }
  GACCD_RETURN_IF_ERROR(CheckSpeeds(speeds));
  if (effective_batch_ > kMaxSamplesBySpeed) {
    return {ErrorKind::kConfig, StrCat("speeds: expected a batch of at most ", kMaxSamplesBySpeed,
                                       " samples, found ", effective_batch_)};
  }
  if (std::ranges::adjacent_find(speeds, std::not_equal_to{}) == speeds.end()) {
    speeds.clear();
    return Status::Ok();
  }
  const SpeedSplit split = SplitBySpeed(speeds, effective_batch_, request_.micro_batch);
  accum_steps_ = split.micro_steps;
  offsets_.reserve(speeds.size() + 1);
  offsets_.push_back(0);
  for (const std::int64_t load : split.loads) offsets_.push_back(offsets_.back() + load);
  return Status::Ok();
}

std::int64_t Plan::reference_batch() const {
  return request_.reference_batch > 0 ? request_.reference_batch : request_.target_batch;
}

double Plan::ratio() const {
  return static_cast<double>(request_.target_batch) / static_cast<double>(base_batch_);
}

double Plan::error_ratio() const {
  return static_cast<double>(effective_batch_ - request_.target_batch) /
         static_cast<double>(request_.target_batch);
}

double Plan::LrFactor(std::int64_t effective) const {
  const double batches = static_cast<double>(effective) / static_cast<double>(reference_batch());
  switch (request_.lr_rule) {
    case LrRule::kNone:
      return 1;
    case LrRule::kLinear:
      return batches;
    case LrRule::kSqrt:
      return std::sqrt(batches);
  }
  return 1;
}

double Plan::balance_ratio() const {
  if (equal_loads()) {
    return static_cast<double>(effective_batch_) /
           (static_cast<double>(pipelines()) * static_cast<double>(ranks_hi_samples()));
  }
  double sum = 0;
  for (std::int64_t rank = 0; rank < world_; ++rank) {
    sum += static_cast<double>(Load(rank)) / Speed(rank);
  }
  return sum / (static_cast<double>(world_) * slowest_time());
}

double Plan::Speed(std::int64_t rank) const {
  return uneven() ? request_.speeds[static_cast<std::size_t>(rank)] : 1;
}

double Plan::slowest_time() const {
  if (!uneven()) return static_cast<double>(ranks_hi_samples());
  double slowest = 0;
  for (std::int64_t rank = 0; rank < world_; ++rank) {
    slowest = std::max(slowest, static_cast<double>(Load(rank)) / Speed(rank));
  }
  return slowest;
}

double Plan::equal_loads_time() const {
  if (!uneven()) return slowest_time();
  double slowest = 0;
  for (std::int64_t rank = 0; rank < world_; ++rank) {
    const std::int64_t load = EvenOffset(rank + 1) - EvenOffset(rank);
    slowest = std::max(slowest, static_cast<double>(load) / Speed(rank));
  }
  return slowest;
}

std::int64_t Plan::ranks_hi() const {
  if (!equal_loads()) {
    const std::int64_t most = ranks_hi_samples();
    std::int64_t ranks = 0;
    for (std::int64_t rank = 0; rank < world_; ++rank) ranks += Load(rank) == most ? 1 : 0;
    return ranks;
  }
  const std::int64_t rest = effective_batch_ % pipelines();
  return rest == 0 ? world_ : rest * request_.stages;
}

std::int64_t Plan::ranks_hi_samples() const {
  if (equal_loads()) return CeilDiv(effective_batch_, pipelines());
  std::int64_t most = 0;
  for (std::int64_t rank = 0; rank < world_; ++rank) most = std::max(most, Load(rank));
  return most;
}

std::int64_t Plan::ranks_lo_samples() const {
  if (ranks_lo() == 0) return 0;
  if (equal_loads()) return effective_batch_ / pipelines();
  std::int64_t least = effective_batch_;
  for (std::int64_t rank = 0; rank < world_; ++rank) least = std::min(least, Load(rank));
  return least;
}

std::int64_t Plan::EvenOffset(std::int64_t pipeline) const {
  const std::int64_t all = pipelines();
  const Wide rest = effective_batch_ % all;
  return pipeline * (effective_batch_ / all) + static_cast<std::int64_t>(pipeline * rest / all);
}

std::int64_t Plan::Offset(std::int64_t rank) const {
  if (any_split()) return SamplesBefore(FirstMicroBatch(rank));
  return uneven() ? offsets_[static_cast<std::size_t>(rank)] : EvenOffset(PipelineIndex(rank));
}

std::int64_t Plan::Load(std::int64_t rank) const {
  if (!equal_loads()) return Offset(rank + 1) - Offset(rank);
  return EvenOffset(PipelineIndex(rank) + 1) - EvenOffset(PipelineIndex(rank));
}

std::int64_t Plan::MicroBatch(std::int64_t rank, std::int64_t step) const {
  return SamplesInFirst(rank, step + 1) - SamplesInFirst(rank, step);
}

std::int64_t Plan::SamplesInFirst(std::int64_t rank, std::int64_t steps) const {
  const std::int64_t load = Load(rank);
  const std::int64_t filled = FilledSteps(rank);
  if (steps >= filled) return load;
  if (any_split()) return SamplesBefore(FirstMicroBatch(rank) + steps) - Offset(rank);
  return steps * (load / filled) + std::min(steps, load % filled);
}

std::int64_t Plan::FilledSteps(std::int64_t rank) const {
  if (any_split()) return FirstMicroBatch(rank + 1) - FirstMicroBatch(rank);
  const std::int64_t load = Load(rank);
  return uneven() ? CeilDiv(load, request_.micro_batch) : std::min(load, accum_steps_);
}

std::set<std::int64_t> Plan::MicroBatchSizes(std::int64_t rank) const {
  const std::int64_t filled = FilledSteps(rank);
  if (filled == 0) return {};
  if (!any_split()) return {MicroBatch(rank, 0), MicroBatch(rank, filled - 1)};
  std::set<std::int64_t> sizes;
  for (std::int64_t step = 0; step < filled && sizes.size() < 2; ++step) {
    sizes.insert(MicroBatch(rank, step));
  }
  return sizes;
}

Result<Plan> Plan::ForTarget(std::int64_t target) const {
  PlanRequest request = request_;
  request.target_batch = target;
  request.reference_batch = reference_batch();
  return Make(request);
}

Result<Plan> Plan::ForSamples(std::int64_t samples) const {
  PlanRequest request = request_;
  request.target_batch = samples;
  request.rounding = Rounding::kExact;
  request.reference_batch = reference_batch();
  return Make(request);
}

}  // namespace gaccd
