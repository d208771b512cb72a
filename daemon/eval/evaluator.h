// Evaluator: measures parameters on evaluation data. Each rank takes its shard; the result is exact
// for any number of ranks and any batch.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/data/dataset.h"
#include "daemon/data/update_schedule.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/engine_ring.h"
#include "daemon/eval/metric.h"
#include "daemon/rundir/progress_notifier.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/telemetry/events.h"

namespace gaccd {

// Whether an evaluation is due after update `step` (from 1; 0: before the first). every_updates:
// that of the job.
[[nodiscard]] bool EvaluationIsDue(const UpdateSchedule& schedule, std::int64_t every_updates,
                                   std::int64_t step);

// Of the training, at the time of an evaluation: for its record.
struct EvaluationTime {
  std::int64_t epoch = 0;  // from 1
  std::int64_t step = 0;   // updates that are done
};

class Evaluator {
 public:
  // `batch`: samples at once; `unit`: what the loss is a mean over (Model::divisor_unit());
  // `metrics`: those of the job, which fit the data; empty: DefaultMetrics(). `comm` and `data`
  // outlive it.
  Evaluator(Communicator& comm, const Dataset& data, std::int64_t batch, std::string_view unit,
            std::vector<MetricSpec> metrics);

  // Batches hold samples of similar length, cut to one of these lengths. Nothing is done where
  // there is none, or the data cannot be cut.
  void GroupByLength(std::vector<std::int64_t> cuts) {
    if (!data_.spec().cuts.empty()) cuts_ = std::move(cuts);
  }

  // Ranks that follow each other are a pipeline of so many stages, which evaluates each batch
  // together.
  void SetStages(int stages) { stages_ = stages; }

  // The sizes of this rank's batches, which its engine must be prepared for.
  [[nodiscard]] std::set<std::int64_t> BatchSizes() const;
  // Which values of the loss or of the metric with this name are better. kConfig, with all names,
  // where none has it.
  [[nodiscard]] Result<Better> FindBetter(std::string_view name) const;
  // Collective. `engine` is the same in every call. stops: asked between batches, or null. Empty:
  // left, as the ranks were asked to stop and there is no time for the rest. kData: no prediction
  // counts.
  Result<std::optional<EvalRecord>> Evaluate(Engine& engine, const EvaluationTime& time,
                                             StopAgreement* stops,
                                             const ProgressNotifier& progress);

 private:
  // The fewest batches that any rank has: so often can all of them be asked.
  [[nodiscard]] std::int64_t FewestBatches() const;
  [[nodiscard]] std::vector<NamedMetric> MakeMetrics() const;

  [[nodiscard]] EvalShard OwnShard() const;

  Communicator& comm_;
  int stages_ = 1;
  const Dataset& data_;
  std::int64_t batch_;
  std::string_view unit_;
  std::vector<MetricSpec> metrics_;
  std::vector<std::int64_t> cuts_;
  EngineRing ring_;
};

}  // namespace gaccd
