// BatchFeed: this rank's micro-batches, update by update, in the order of the plan; and the plan
// and the step program of each update.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/data/dataset.h"
#include "daemon/data/index_source.h"
#include "daemon/data/prefetcher.h"
#include "daemon/data/sample_order.h"
#include "daemon/data/update_schedule.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/engine_ring.h"
#include "daemon/engine/step_program.h"
#include "daemon/plan/plan.h"
#include "daemon/train/nonfinite.h"

namespace gaccd {

class BatchFeed {
 public:
  // The largest micro-batch for PrepareForOtherLoads(): every size up to it is prepared.
  static constexpr std::int64_t kMostPreparedSizes = 64;

  // program: of every update. kConfig when an update of the schedule has no plan. `data`
  // outlives it.
  static Result<BatchFeed> Make(const Dataset& data, const SampleOrder& order,
                                const UpdateSchedule& schedule, const Plan& plan, int rank,
                                ProgramGenerator program = PlainAccumulation);

  // Micro-batches hold samples of similar length, cut to one of these lengths (TrainIndices,
  // PrefetcherOptions). Empty: nothing is done. To be called before Start().
  void GroupByLength(std::vector<std::int64_t> cuts) { cuts_ = std::move(cuts); }
  // ChangePlan() may be called. Memory and sizes are then those of any load. Before Start().
  void PrepareForOtherLoads() { any_load_ = true; }
  // Another plan of the same batch, micro-batch and ranks; from the next Start() on.
  Status ChangePlan(const Plan& plan);
  [[nodiscard]] bool groups_by_length() const { return !cuts_.empty(); }

  // Updates of every size have a plan and a program of their own.
  [[nodiscard]] const Plan& PlanOf(const Update& update) const { return WorkOf(update).plan; }
  [[nodiscard]] const StepProgram& ProgramOf(const Update& update) const {
    return WorkOf(update).program;
  }
  // The sizes of the micro-batches, which the engine must be prepared for.
  [[nodiscard]] std::set<std::int64_t> BatchSizes() const;

  // Of this rank in an update. A smaller update may have more of them where speeds differ.
  [[nodiscard]] std::int64_t most_samples() const;
  // Of the updates: a smaller one may have more of them where the ranks have different speeds. At
  // least 2 where other loads may come: weights are then packed for several micro-steps.
  [[nodiscard]] std::int64_t most_micro_steps() const;

  // From the first micro-batch of update `index` (from 0) on; may be called again. `engine` is the
  // same in every call and outlives this.
  Status Start(Engine& engine, std::int64_t index);
  // REQUIRES: Start().
  [[nodiscard]] Prefetcher& batches() { return *batches_; }

  // The micro-batches of one update once more, independent of batches(). One replay at a time.
  Result<UpdateReplay> Replay(Engine& engine, const Update& update);

 private:
  struct Work {
    Plan plan;
    StepProgram program;
  };

  BatchFeed(const Dataset& data, const SampleOrder& order, const UpdateSchedule& schedule,
            ProgramGenerator program, const Plan& plan, int rank)
      : data_(&data),
        order_(order),
        schedule_(schedule),
        program_(program),
        plan_(plan),
        rank_(rank) {}
  [[nodiscard]] const Work& WorkOf(const Update& update) const { return work_.at(update.samples); }
  [[nodiscard]] Result<std::unique_ptr<IndexSource>> IndicesFrom(std::int64_t index) const;

  const Dataset* data_;
  SampleOrder order_;
  UpdateSchedule schedule_;
  ProgramGenerator program_;
  Plan plan_;
  std::map<std::int64_t, Work> work_;  // by the samples of an update
  int rank_;
  std::vector<std::int64_t> cuts_;
  bool any_load_ = false;
  EngineRing ring_;
  EngineRing replay_ring_;
  std::unique_ptr<Prefetcher> batches_;
};

}  // namespace gaccd
