// Lists of sample numbers, one per micro-batch, in the order one rank consumes them.
// Not thread-safe: one thread (the prefetch thread) draws from a source.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
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

  // The most samples Next() gives at once.
  [[nodiscard]] virtual std::int64_t max_samples() const = 0;

  // Writes the samples of the next micro-batch and returns how many (0: this rank has none in this
  // micro-step), or kEnd. REQUIRES: out.size() >= max_samples(). Does not allocate.
  virtual std::int64_t Next(std::span<std::int64_t> out) = 0;

  // BatchView::draw of the micro-batch that Next() gave.
  [[nodiscard]] virtual std::uint64_t draw() const { return 0; }
  // BatchView::position of it.
  [[nodiscard]] virtual std::int64_t position() const { return 0; }
  // BatchView::run of it.
  [[nodiscard]] virtual RunPosition run_position() const { return {}; }
};

// Training: for every update from `first_update` on, every micro-step of `rank`. In an update of n
// samples the rank takes Plan::Load(rank) of them from Plan::Offset(rank) on, cut into
// Plan::MicroBatch(rank, j); smaller updates follow plan.ForSamples(n), which may have another k.
// passes: so often the micro-batches of an update come, one time after the other.
class TrainIndices final : public IndexSource {
 public:
  // Errors: kConfig when plan and schedule have different batches, or a rank or update is out of
  // range.
  static Result<TrainIndices> Make(const SampleOrder& order, const UpdateSchedule& schedule,
                                   const Plan& plan, std::int64_t rank,
                                   std::int64_t first_update = 0, int passes = 1);

  // The rank's samples of an update are put in the order of their lengths before they are cut into
  // micro-batches: the samples and the sizes stay, and a micro-batch holds less padding. `data`,
  // whose samples have lengths, outlives this. To be called before Next().
  void GroupByLength(const Dataset& data);

  // max_samples() is the most that the plan allows, whatever this rank takes.
  void RoomForAnyLoad() { any_load_ = true; }

  [[nodiscard]] std::int64_t max_samples() const override;
  std::int64_t Next(std::span<std::int64_t> out) override;
  [[nodiscard]] std::uint64_t draw() const override { return draw_; }
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
  std::int64_t in_update_ = 0;  // position() of what Next() gave
  const Dataset* by_length_ = nullptr;
  std::vector<std::int64_t> grouped_;  // by_length_: this rank's samples of the update
  std::size_t taken_ = 0;              // of grouped_
  std::uint64_t draw_ = 0;
  std::int64_t taken_from_ = 0;  // run position of the micro-batch that Next() gave
  std::int64_t of_update_ = 0;   // the samples of its update
};

// Evaluation: samples [first, first + count) of rank `rank`, in order, `batch` at a time; the last
// batch takes the rest. Over all ranks every sample of the set comes exactly once.
struct EvalShard {
  std::int64_t first = 0;
  std::int64_t count = 0;  // differs by at most one between ranks; 0 when there are more ranks
};
// REQUIRES: size >= 0, 0 <= rank < world.
[[nodiscard]] EvalShard ShardOf(std::int64_t size, std::int64_t rank, std::int64_t world);

// The sizes of the batches of a shard.
[[nodiscard]] std::set<std::int64_t> EvalBatchSizes(const EvalShard& shard, std::int64_t batch);

class EvalIndices final : public IndexSource {
 public:
  EvalIndices(EvalShard shard, std::int64_t batch) : shard_(shard), batch_(batch) {}

  // The samples of the shard come in the order of their lengths. As for TrainIndices.
  void GroupByLength(const Dataset& data);

  [[nodiscard]] std::int64_t max_samples() const override {
    return batch_ < shard_.count ? batch_ : shard_.count;
  }
  std::int64_t Next(std::span<std::int64_t> out) override;

 private:
  EvalShard shard_;  // what is left
  std::int64_t batch_;
  std::vector<std::int64_t> grouped_;  // what is left of it is the end; empty: not grouped
};

}  // namespace gaccd
