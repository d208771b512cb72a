// Lists of sample numbers, one per micro-batch, in the order in which a rank consumes them. Not
// thread-safe: used by one thread, the prefetch thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/data/dataset.h"
#include "daemon/data/sample_order.h"
#include "daemon/data/update_schedule.h"
#include "daemon/plan/plan.h"

namespace gaccd {

class IndexSource {
 public:
  static constexpr std::int64_t kEnd = -1;

  virtual ~IndexSource() = default;

  // The maximum number of samples of one Next().
  [[nodiscard]] virtual std::int64_t max_samples() const = 0;

  // Writes the samples of the next micro-batch and returns their number (0: this rank has none in
  // this micro-step), or kEnd. REQUIRES: out.size() >= max_samples(). Does not allocate.
  virtual std::int64_t Next(std::span<std::int64_t> out) = 0;

  // BatchView::augmentation_seed of the last micro-batch of Next().
  [[nodiscard]] virtual std::uint64_t augmentation_seed() const { return 0; }
  // Its BatchView::position.
  [[nodiscard]] virtual std::int64_t position() const { return 0; }
  // Its BatchView::run.
  [[nodiscard]] virtual RunPosition run_position() const { return {}; }
};

// Training: all micro-steps of `rank` in every update from `first_update` on. In an update of n
// samples the rank has Plan::Load(rank) of them, starting at Plan::Offset(rank), divided into
// Plan::MicroBatch(rank, j); smaller updates use plan.ForSamples(n), which may have another number
// of micro-steps. passes: how often the micro-batches of each update are repeated in sequence.
class TrainIndices final : public IndexSource {
 public:
  // kConfig if plan and schedule have different batches, order and schedule different data sets, or
  // rank or update is out of range.
  static Result<TrainIndices> Make(const SampleOrder& order, const UpdateSchedule& schedule,
                                   const Plan& plan, std::int64_t rank,
                                   std::int64_t first_update = 0, int passes = 1);

  // Sorts the rank's samples of an update by length before dividing them into micro-batches, which
  // then contain less padding; the samples of the update and the sizes are unchanged. If
  // Plan::any_split(), the samples of the whole update are sorted, and every rank has micro-batches
  // of all lengths. REQUIRES: `data` has lengths and outlives this; called before Next().
  void GroupByLength(const Dataset& data);

  // Makes max_samples() the maximum of the plan instead of that of this rank's load.
  void AllowAnyLoad() { any_load_ = true; }

  [[nodiscard]] std::int64_t max_samples() const override;
  std::int64_t Next(std::span<std::int64_t> out) override;
  [[nodiscard]] std::uint64_t augmentation_seed() const override { return augmentation_seed_; }
  [[nodiscard]] std::int64_t position() const override { return in_update_; }
  [[nodiscard]] RunPosition run_position() const override {
    return {.seed = order_.seed(),
            .first = taken_from_,
            .epoch_samples = order_.size(),
            .update_samples = of_update_};
  }

 private:
  TrainIndices(const SampleOrder& order, const UpdateSchedule& schedule,
               std::map<std::int64_t, Plan> plans, std::int64_t rank, std::int64_t first_update,
               int passes);
  void EnterUpdate();

  SampleOrder order_;
  UpdateSchedule schedule_;
  std::map<std::int64_t, Plan> plans_;  // by the samples of an update
  std::int64_t rank_;
  std::int64_t update_;
  int passes_;
  int pass_ = 0;  // of this update
  bool any_load_ = false;
  std::int64_t step_ = 0;
  std::int64_t position_ = 0;   // run position of the next sample of this rank
  std::int64_t begin_ = 0;      // run position of the update
  std::int64_t samples_ = 0;    // of the update
  std::int64_t in_update_ = 0;  // position() of the last Next()
  const Dataset* by_length_ = nullptr;
  std::vector<std::int64_t> grouped_;  // by_length_: this rank's samples of the update, or all
  std::size_t taken_ = 0;              // samples of grouped_ already returned
  // Plan::any_split(): by the samples of an update, where each micro-batch of this rank begins in
  // grouped_.
  std::map<std::int64_t, std::vector<std::int64_t>> begins_;
  std::uint64_t augmentation_seed_ = 0;
  std::int64_t taken_from_ = 0;  // run position of the last micro-batch of Next()
  std::int64_t of_update_ = 0;   // number of samples of its update
};

// Evaluation: a rank's samples [first, first + count), in order, in batches of `batch` and a last
// one with the rest. The shards of all ranks contain every sample exactly once.
struct EvalShard {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
// A shard consists of whole units of `unit` samples; the last one also has the rest. Ranks have the
// same number of units, or the first ones have one more. REQUIRES: size >= 0, unit >= 1, 0 <= rank
// < world.
[[nodiscard]] EvalShard MakeEvalShard(std::int64_t size, std::int64_t rank, std::int64_t world,
                                      std::int64_t unit = 1);

// The sizes of the batches of a shard.
[[nodiscard]] std::set<std::int64_t> EvalBatchSizes(const EvalShard& shard, std::int64_t batch);

class EvalIndices final : public IndexSource {
 public:
  EvalIndices(EvalShard shard, std::int64_t batch) : shard_(shard), batch_(batch) {}

  // Sorts the samples of the shard by length. As for TrainIndices.
  void GroupByLength(const Dataset& data);

  [[nodiscard]] std::int64_t max_samples() const override {
    return batch_ < shard_.count ? batch_ : shard_.count;
  }
  std::int64_t Next(std::span<std::int64_t> out) override;

 private:
  EvalShard shard_;  // remaining samples
  std::int64_t batch_;
  std::vector<std::int64_t> grouped_;  // its last shard_.count remain; empty: not grouped
};

}  // namespace gaccd
