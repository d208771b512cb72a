// The inputs of a training in addition to its job, its results, and what its checkpoints refer to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/checkpoint/manifest.h"
#include "daemon/config/flags_spec.h"
#include "daemon/config/job.h"
#include "daemon/optim/optimizer.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"
#include "daemon/telemetry/events.h"

namespace gaccd {

// Bytes of this rank. `process` is what is there before the first update, measured: program, data,
// the code of the kernels.
struct MemoryUse {
  std::int64_t process = 0;
  // Process, engine, training batches, checkpointer; not the ring of an evaluation.
  std::int64_t planned = 0;
  std::int64_t device = 0;  // planned on the GPU; 0 on a CPU
};

// What watches over the numbers of a run.
struct TrainGuards {
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  // The replicas are compared after so many updates, and after the last one; 0: never.
  std::int64_t digest_every = 0;
};

// Whether the loads of the ranks follow their measured times: once, as --speed=measured says, or
// always, as --rebalance=auto does. Neither: they are advice.
struct LoadChanges {
  bool once = false;
  bool always = false;

  [[nodiscard]] bool any() const { return once || always; }
};

// What was done so far.
struct TrainingSummary {
  std::int64_t updates = 0;
  std::int64_t samples = 0;             // that changed the parameters
  std::int64_t skipped = 0;             // of the updates, those left out as they were not finite
  std::int64_t unlabelled = 0;          // and as no label of theirs counts
  std::int64_t allocation_retries = 0;  // of all ranks, when it is complete
  std::vector<MetricValue> metrics;     // of the last evaluation
  std::optional<BestValue> best;        // of all evaluations
  std::string stopped_early;         // why the run ended before its last update; empty: it did not
  std::int64_t measured_memory = 0;  // at the end
  bool failed_together = false;      // Run()'s error is that of all ranks
};

// What the cursor of a run refers to. All of it outlives what uses it.
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

}  // namespace gaccd
