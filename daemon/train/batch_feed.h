// BatchFeed: this rank's micro-batches of each update in the order of the plan, and the plan and
// update program of each update.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
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
#include "daemon/engine/update_program.h"
#include "daemon/plan/plan.h"
#include "daemon/train/nonfinite.h"

namespace gaccd {

class BatchFeed {
 public:
  // The maximum micro-batch for PrepareForOtherLoads(), which prepares every size up to it.
  static constexpr std::int64_t kMaxPreparedSizes = 64;

  // program: generates the program of each update. kConfig if an update of the schedule has no
  // plan. `data` must outlive it.
  static Result<BatchFeed> Make(const Dataset& data, const SampleOrder& order,
                                const UpdateSchedule& schedule, const Plan& plan, int rank,
                                ProgramGenerator program = PlainAccumulation);

  // Groups samples of similar length into micro-batches, cut to one of these lengths (TrainIndices,
  // PrefetcherOptions). Empty: no grouping. Call before Start().
  void GroupByLength(std::vector<std::int64_t> cuts) { cuts_ = std::move(cuts); }
  // Allows ChangePlan(): memory and sizes are then sufficient for any load. Call before Start().
  void PrepareForOtherLoads() { any_load_ = true; }
  // Sets another plan for the same batch, micro-batch and ranks; takes effect at the next Start().
  Status ChangePlan(const Plan& plan);

  // Each size of an update has its own plan and program.
  [[nodiscard]] const Plan& PlanFor(const Update& update) const { return WorkFor(update).plan; }
  [[nodiscard]] const UpdateProgram& ProgramFor(const Update& update) const {
    return WorkFor(update).program;
  }
  // All micro-batch sizes, for which the engine must be prepared.
  [[nodiscard]] std::set<std::int64_t> BatchSizes() const;

  // The maximum samples of this rank in an update. With different speeds, a smaller update may give
  // a rank more samples than a larger one.
  [[nodiscard]] std::int64_t max_samples() const;
  // The maximum micro-steps of an update; with different speeds a smaller update may have more. At
  // least 2 if loads may change: weights are then packed for several micro-steps.
  [[nodiscard]] std::int64_t max_micro_steps() const;

  // Starts at the first micro-batch of update `index` (from 0); may be called again. `engine` must
  // be the same in every call and outlive this.
  Status Start(Engine& engine, std::int64_t index);
  // REQUIRES: Start().
  [[nodiscard]] Prefetcher& batches() { return *batches_; }

  // Reads the micro-batches of one update again, independently of batches(). One replay at a time.
  Result<UpdateReplay> Replay(Engine& engine, const Update& update);

 private:
  struct Work {
    Plan plan;
    UpdateProgram program;
  };

  BatchFeed(const Dataset& data, const SampleOrder& order, const UpdateSchedule& schedule,
            ProgramGenerator program, const Plan& plan, int rank)
      : data_(&data),
        order_(order),
        schedule_(schedule),
        program_(program),
        plan_(plan),
        rank_(rank) {}
  [[nodiscard]] const Work& WorkFor(const Update& update) const { return work_.at(update.samples); }
  [[nodiscard]] Result<std::unique_ptr<IndexSource>> IndicesFrom(std::int64_t index) const;

  const Dataset* data_;
  SampleOrder order_;
  UpdateSchedule schedule_;
  ProgramGenerator program_;
  Plan plan_;
  std::map<std::int64_t, Work> work_;  // by the number of samples of an update
  int rank_;
  std::vector<std::int64_t> cuts_;
  bool any_load_ = false;
  EngineRing ring_;
  EngineRing replay_ring_;
  std::unique_ptr<Prefetcher> batches_;
};

}  // namespace gaccd
