// Inputs of a training on one rank, its results, and the references of its checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/config/flags_spec.h"
#include "daemon/config/job.h"
#include "daemon/data/update_schedule.h"
#include "daemon/eval/best_evaluation.h"
#include "daemon/eval/evaluator.h"
#include "daemon/optim/optimizer.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"
#include "daemon/telemetry/events.h"
#include "daemon/train/batch_feed.h"

namespace gaccd {

// Bytes on this rank. process: measured before the first update: program, data, kernel code.
struct MemoryUse {
  std::int64_t process = 0;
  // Process, engine, training batches, checkpointer; without the ring of an evaluation.
  std::int64_t planned = 0;
  std::int64_t device = 0;  // planned on the GPU; 0 on a CPU
};

// Checks of the numbers of a run.
struct TrainGuards {
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  // Replicas are compared after every `digest_every` updates, and after the last one; 0: never.
  std::int64_t digest_every = 0;
};

// Whether the loads of the ranks follow their measured times: once (--speed=measured), or always
// (--rebalance=auto). Neither: only advice.
struct LoadChanges {
  bool once = false;
  bool always = false;

  [[nodiscard]] bool any() const { return once || always; }
};

// Progress so far.
struct TrainingSummary {
  std::int64_t updates = 0;
  std::int64_t samples = 0;             // samples that changed the parameters
  std::int64_t skipped = 0;             // updates skipped because they were not finite
  std::int64_t unlabelled = 0;          // updates skipped because none of their labels counts
  std::int64_t allocation_retries = 0;  // over all ranks, set at the end
  std::vector<MetricValue> metrics;     // of the last evaluation
  std::optional<BestValue> best;        // over all evaluations
  std::string stopped_early;         // why the run ended before its last update; empty: it did not
  std::int64_t measured_memory = 0;  // at the end
  bool failed_together = false;      // Run()'s error is shared by all ranks
};

// References for the checkpoints of a run. All members must outlive it.
struct SavedRun {
  const Job& job;
  const Plan& plan;
  const Model& model;
  std::int64_t dataset_samples = 0;
  const BestSoFar& best;
  const LossScaleState* loss_scale = nullptr;  // null: not fp16
  DataContent content = {};

  [[nodiscard]] bool by_length() const { return !model.sample().cuts.empty(); }
  [[nodiscard]] std::int64_t optimizer_elements() const {
    return StateElements(job.optimizer, model.layout().trainable_size());
  }
};

// The inputs of a training on one rank, before the device is selected.
struct TrainingInputs {
  // Checks the model and the schedule with the opened data. Local: a rank may fail alone, so the
  // caller must let all ranks agree on the result before the collective Trainer::Make(). REQUIRES:
  // plan.world() == comm.size(). `comm` must outlive the inputs.
  static Result<TrainingInputs> Make(Communicator& comm, const Job& job, const Plan& plan,
                                     TrainingData data);

  // Bytes of one checkpoint over all ranks.
  [[nodiscard]] double checkpoint_bytes() const;

  Job job;
  Plan plan;
  TrainingData data;
  Model model;
  UpdateSchedule schedule;
  BatchFeed feed;
  std::optional<Evaluator> evaluator;  // set if there is evaluation data
  Better better = Better::kSmaller;    // for values of evaluation.metric
  LabelCounts labels;  // of the training data. An update of unlabelled samples alone is skipped
  LabelCounts eval_labels;
};

}  // namespace gaccd
