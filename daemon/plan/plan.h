// The plan: how many samples every rank takes in every micro-step of an update, so that the
// effective batch is the requested one. Pure arithmetic: no I/O, no MPI, and without speeds no
// allocation that grows with the world.
//
// W = nodes * gpus_per_node ranks, base = W * micro_batch, ratio = target / base.
//   mode     micro-steps k                                      effective batch
//   exact    smallest k with k * micro_batch >= ceil(target/W)  target, always
//   floor    max(1, floor(ratio))                               k * base
//   ceil     ceil(ratio)                                        k * base
//   nearest  max(1, round half up(ratio))                       k * base
//
// With q = effective / W and r = effective % W, rank i takes
//   Load(i)   = q + (floor((i+1) r / W) - floor(i r / W))      r ranks take one more, spread evenly
//   Offset(i) = i q + floor(i r / W)                           samples of the ranks before i
//   MicroBatch(i, j) = Load(i) / k + (j < Load(i) % k)         sizes fall with j and may reach 0
//
// With pipelines of several stages, W is the number of pipelines. The ranks of a pipeline, which
// are consecutive, share the samples of the pipeline, and functions of a rank return the values of
// its pipeline.
//
// If the ranks have different speeds, the effective batch is the same, and Load(i) and k are those
// of SplitBySpeed(). k is the same for all ranks; a slow rank uses the first k_i = ceil(Load(i) /
// micro_batch) micro-steps, with k_i in place of k in MicroBatch(). Its other micro-steps are
// empty, because smaller micro-batches take longer per sample.
//
// With Bits::kAnySplit the micro-batches do not depend on the ranks: M = ceil(effective /
// micro_batch), and micro-batch m starts at sample floor(m effective / M). Rank i starts at
// micro-batch ceil(i M / W), and k = ceil(M / W).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

enum class Rounding : std::uint8_t { kExact, kFloor, kCeil, kNearest };
enum class LrRule : std::uint8_t { kNone, kLinear, kSqrt };

// Whether the bits of a result may depend on how the samples are split among ranks.
enum class Bits : std::uint8_t { kThisSplit, kAnySplit };
// The maximum micro-batches of an update for which sums stay exact (reproducible_sum.h).
inline constexpr std::int64_t kMaxExactMicroBatches = std::int64_t{1} << 16;

// Whether the backward recomputes activations, so that they need not be kept.
enum class Recompute : std::uint8_t { kNone, kBlocks };

[[nodiscard]] std::string_view Name(Rounding rounding);    // "exact", ...
[[nodiscard]] std::string_view Name(LrRule rule);          // "none", ...
[[nodiscard]] std::string_view Name(Bits bits);            // "this-split", "any-split"
[[nodiscard]] std::string_view Name(Recompute recompute);  // "none", "blocks"

struct PlanRequest {
  std::int64_t nodes = 1;
  std::int64_t gpus_per_node = 8;
  std::int64_t micro_batch = 10;  // the maximum number of samples that a rank holds at once
  std::int64_t target_batch = 0;
  Rounding rounding = Rounding::kExact;
  LrRule lr_rule = LrRule::kNone;
  std::int64_t reference_batch = 0;  // for the learning-rate rule; 0: the target batch
  // By rank: relative speed, in samples per unit of time; a rank of speed 1 computes one sample per
  // unit. Empty: all equal.
  std::vector<double> speeds = {};
  Recompute recompute = Recompute::kNone;
  // Ranks per pipeline, each with one part of the model; they are consecutive.
  std::int64_t stages = 1;
  Bits bits = Bits::kThisSplit;

  bool operator==(const PlanRequest&) const = default;
};

// Memory that a plan needs on a rank, and the limit of that rank.
struct MemoryNeed {
  std::int64_t bytes = 0;
  std::int64_t limit = 0;

  [[nodiscard]] bool fits() const { return bytes <= limit; }
};

class Plan {
 public:
  // kUsage: a count < 1 (reference_batch: < 0). kConfig: a product exceeds 63 bits, the number of
  // ranks is not a multiple of the stages, the numbers of speeds and ranks differ, CheckSpeeds()
  // fails, the batch exceeds kMaxSamplesBySpeed, or kAnySplit is combined with a rounding, speeds,
  // stages or more than kMaxExactMicroBatches micro-batches. The message contains the field and its
  // value. Equal speeds are the same as no speeds.
  static Result<Plan> Make(const PlanRequest& request);

  [[nodiscard]] const PlanRequest& request() const { return request_; }
  [[nodiscard]] std::int64_t world() const { return world_; }
  [[nodiscard]] std::int64_t stages() const { return request_.stages; }
  [[nodiscard]] std::int64_t pipelines() const { return world_ / request_.stages; }
  [[nodiscard]] std::int64_t base_batch() const { return base_batch_; }
  [[nodiscard]] std::int64_t effective_batch() const { return effective_batch_; }
  [[nodiscard]] std::int64_t accum_steps() const { return accum_steps_; }
  // request().reference_batch, or the target if that is 0.
  [[nodiscard]] std::int64_t reference_batch() const;
  [[nodiscard]] bool exact() const { return effective_batch_ == request_.target_batch; }

  [[nodiscard]] double ratio() const;        // target / base
  [[nodiscard]] double error_ratio() const;  // (effective - target) / target
  // Learning-rate factor of the rule for effective / reference batch.
  [[nodiscard]] double lr_factor() const { return LrFactor(effective_batch_); }
  [[nodiscard]] double LrFactor(std::int64_t effective) const;
  // Mean / maximum time of the ranks (load / speed): the share of time spent computing.
  [[nodiscard]] double balance_ratio() const;

  // Whether the ranks have different speeds.
  [[nodiscard]] bool uneven() const { return !offsets_.empty(); }
  // Whether the micro-batches do not depend on the ranks.
  [[nodiscard]] bool any_split() const { return request_.bits == Bits::kAnySplit; }
  // If any_split(): micro-batches of an update, and of the ranks before this one; samples before a
  // micro-batch.
  [[nodiscard]] std::int64_t micro_batches() const;
  [[nodiscard]] std::int64_t FirstMicroBatch(std::int64_t rank) const;
  [[nodiscard]] std::int64_t SamplesBefore(std::int64_t micro_batch) const;
  [[nodiscard]] double Speed(std::int64_t rank) const;  // 1 unless uneven()
  // Time of an update: the largest load / speed, and the same with equal loads. The unit is the
  // time of one sample at speed 1.
  [[nodiscard]] double slowest_time() const;
  [[nodiscard]] double equal_loads_time() const;

  // ranks_hi ranks take ranks_hi_samples; the other ranks_lo take ranks_lo_samples = hi - 1. If all
  // take the same, ranks_hi == world, ranks_lo == 0 and ranks_lo_samples == 0. If uneven() or
  // any_split(), ranks_hi take the largest load, and ranks_lo_samples is the smallest load.
  [[nodiscard]] std::int64_t ranks_hi() const;
  [[nodiscard]] std::int64_t ranks_hi_samples() const;
  [[nodiscard]] std::int64_t ranks_lo() const { return world_ - ranks_hi(); }
  [[nodiscard]] std::int64_t ranks_lo_samples() const;

  // REQUIRES: 0 <= rank < world() (<= world() for Offset), 0 <= step < accum_steps().
  [[nodiscard]] std::int64_t Load(std::int64_t rank) const;
  [[nodiscard]] std::int64_t Offset(std::int64_t rank) const;
  [[nodiscard]] std::int64_t MicroBatch(std::int64_t rank, std::int64_t step) const;
  // Samples of its first `steps` micro-steps; at most all of them.
  [[nodiscard]] std::int64_t SamplesInFirst(std::int64_t rank, std::int64_t steps) const;
  // The number of non-empty micro-steps of this rank; they come first. MicroBatchSizes: their
  // sizes, at most two.
  [[nodiscard]] std::int64_t FilledSteps(std::int64_t rank) const;
  [[nodiscard]] std::set<std::int64_t> MicroBatchSizes(std::int64_t rank) const;

  // Set if the micro-batch was chosen by memory: the need of the rank with the least memory left.
  [[nodiscard]] const std::optional<MemoryNeed>& memory() const { return memory_; }
  void set_memory(const MemoryNeed& need) { memory_ = need; }

  // The plan for another target, with the same rounding, reference batch and ranks.
  [[nodiscard]] Result<Plan> ForTarget(std::int64_t target) const;

  // The exact plan for an update of `samples` samples on the same ranks: the last, incomplete
  // cycle. Keeps the reference batch, so a linear rule lowers the rate with the samples, and the
  // speeds.
  [[nodiscard]] Result<Plan> ForSamples(std::int64_t samples) const;

 private:
  Plan() = default;
  [[nodiscard]] Status CheckStages() const;
  Status SplitUnevenly();
  [[nodiscard]] Status CheckAnySplit() const;
  [[nodiscard]] bool equal_loads() const { return !uneven() && !any_split(); }
  // pipeline: its index; if stages is 1, that of a rank.
  [[nodiscard]] std::int64_t EvenOffset(std::int64_t pipeline) const;
  [[nodiscard]] std::int64_t PipelineIndex(std::int64_t rank) const {
    return rank / request_.stages;
  }

  PlanRequest request_;
  std::int64_t world_ = 0;
  std::int64_t base_batch_ = 0;
  std::int64_t effective_batch_ = 0;
  std::int64_t accum_steps_ = 0;
  std::vector<std::int64_t> offsets_;  // if uneven(): by rank, then the effective batch
  std::optional<MemoryNeed> memory_;
};

// ceil(a / b) of integers.

// REQUIRES: a >= 0, b >= 1.
[[nodiscard]] constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace gaccd
