// Trainer: one rank of a run. Made after the ranks found each other; owns everything of this rank.
#pragma once

#include <memory>
#include <optional>

#include "collectives/base/result.h"
#include "collectives/bucket/bucket_reducer.h"
#include "collectives/comm/communicator.h"
#include "daemon/accum/sample_ledger.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/data/prefetcher.h"
#include "daemon/data/update_schedule.h"
#include "daemon/model/model.h"
#include "daemon/model/replica.h"
#include "daemon/optim/optimizer.h"
#include "daemon/plan/plan.h"
#include "daemon/telemetry/run_reporter.h"

namespace gaccd {

// Bytes of this rank. `process` is what is there before the first update, measured: program, data,
// the code of the kernels.
struct MemoryFigures {
  std::int64_t process = 0;
  std::int64_t planned = 0;  // process + everything the engine will use
};

// What was done so far.
struct TrainingSummary {
  std::int64_t updates = 0;
  std::int64_t samples = 0;
  std::optional<double> accuracy;    // of the last evaluation
  std::int64_t measured_memory = 0;  // at the end
};

class Trainer {
 public:
  // Opens and checks the data, the model and the schedule. Local: a rank may fail alone, so the
  // caller lets all ranks agree on the result before the collective Prepare(). `plan` is of this
  // world: plan.world() == comm.size(). `comm` must outlive the trainer.
  static Result<std::unique_ptr<Trainer>> Open(Communicator& comm, const Job& job,
                                               const Plan& plan);

  // Prepares every executor and allocates all memory. Collective.
  Status Prepare();

  // Loads weights before Run(), or saves the parameters as they are. safetensors.
  Status LoadWeights(const std::string& path);
  Status SaveWeights(const std::string& path);

  // Trains to the end of the schedule. Collective. `summary` is kept up to date, also on errors.
  Status Run(RunReporter& reporter, TrainingSummary* summary);

  // REQUIRES: after Prepare().
  [[nodiscard]] std::span<const float> parameters() const { return replica_->parameters(); }
  [[nodiscard]] const Model& model() const { return model_; }
  [[nodiscard]] const MemoryFigures& memory() const { return memory_; }
  [[nodiscard]] const UpdateSchedule& schedule() const { return schedule_; }
  [[nodiscard]] std::int64_t train_samples() const { return train_->size(); }
  [[nodiscard]] std::int64_t eval_samples() const { return eval_ ? eval_->size() : 0; }

 private:
  Trainer(Communicator& comm, const Job& job, const Plan& plan, std::unique_ptr<Dataset> train,
          std::unique_ptr<Dataset> eval, Model model, const UpdateSchedule& schedule);
  Status PrepareEngine(std::span<float> gradients);
  Result<EvalRecord> Evaluate();

  Communicator& comm_;
  Job job_;
  Plan plan_;
  std::optional<Plan> tail_plan_;  // of the smaller updates
  std::unique_ptr<Dataset> train_;
  std::unique_ptr<Dataset> eval_;
  Model model_;
  UpdateSchedule schedule_;
  MemoryFigures memory_;
  std::unique_ptr<CommMemory> gradient_memory_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Prefetcher> batches_;
  SampleLedger ledger_;
  std::optional<BucketReducer> reducer_;
};

}  // namespace gaccd
