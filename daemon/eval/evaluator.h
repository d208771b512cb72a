// Evaluator: loss and metrics of a model on evaluation data. Each rank evaluates its shard; the
// result is exact for any number of ranks and any batch size.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/data/update_schedule.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/engine_ring.h"
#include "daemon/eval/metric.h"
#include "daemon/rundir/progress_notifier.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/telemetry/events.h"
#include "daemon/tensor/reproducible_sum.h"

namespace gaccd {

// Whether an evaluation is due after update `step` (from 1; 0: before the first one).
// every_updates: the job's evaluation.every_updates.
[[nodiscard]] bool EvaluationIsDue(const UpdateSchedule& schedule, std::int64_t every_updates,
                                   std::int64_t step);

// The job's metrics, otherwise DefaultMetrics(), except for the loss `output`, which has none.
// spec: of the evaluation data.
[[nodiscard]] std::vector<MetricSpec> SelectMetrics(const Job& job, const SampleSpec& spec);

// The direction of the job's evaluation.metric: the loss, or a metric of the evaluation. spec: of
// the evaluation data. kConfig, with all names, if there is none with this name.
[[nodiscard]] Result<Better> FindBetter(const Job& job, const SampleSpec& spec);

// The state of the training, for the record of an evaluation.
struct EvaluationTime {
  std::int64_t epoch = 0;  // from 1
  std::int64_t step = 0;   // updates done
};

class Evaluator {
 public:
  // batch: samples per batch; unit: of the loss, Model::divisor_unit(); metrics:
  // compatible with the data. `comm` and `data` must outlive it.
  Evaluator(Communicator& comm, const Dataset& data, std::int64_t batch, std::string_view unit,
            std::vector<MetricSpec> metrics);

  // Makes batches of samples with similar lengths, cut to one of these lengths. No effect if `cuts`
  // is empty, or the data cannot be cut.
  void GroupByLength(std::vector<std::int64_t> cuts) {
    if (!data_.spec().cuts.empty()) cuts_ = std::move(cuts);
  }

  // Every `stages` consecutive ranks are a pipeline, which evaluates each batch together.
  void SetStages(int stages) { stages_ = stages; }
  // The loss has the same bits on any number of ranks: they evaluate the same batches, texts are
  // not grouped, and sums are exact.
  void SetAnySplit(bool any_split) { any_split_ = any_split; }

  // The sizes of this rank's batches, for which its engine must be prepared.
  [[nodiscard]] std::set<std::int64_t> BatchSizes() const;
  // Collective. `engine` must be the same in every call. stops: checked between batches; null: not
  // checked, ranks wait for slower ones. REQUIRES then: no stages. Empty: interrupted, because the
  // ranks must stop and there is no time for the rest. kData: no prediction counts.
  Result<std::optional<EvalRecord>> Evaluate(Engine& engine, const EvaluationTime& time,
                                             StopAgreement* stops,
                                             const ProgressNotifier& progress);

 private:
  // Called after `done` batches, before the next one; true: stop here.
  using BetweenBatches = std::function<Result<bool>(std::int64_t done)>;

  // Sums over batches. Counts are exact in a double up to 2^53. Only doubles: one reduction covers
  // all of them.
  struct Sums {
    double samples = 0;
    double loss = 0;
    double divisor = 0;
    std::array<double, 2 * kDoubleBins> bins{};  // of loss and divisor, if any_split_
  };
  // Adds this rank's batches to `metrics` and `sums`. false: stopped before the last one.
  Result<bool> EvaluateShard(Engine& engine, std::int64_t step, const ProgressNotifier& progress,
                             const BetweenBatches& between, Sums& sums,
                             std::span<const NamedMetric> metrics);
  Status SumOverAllRanks(Sums& sums);
  // The minimum over the ranks, for StopAgreement::BetweenBatches().
  [[nodiscard]] std::int64_t FewestBatches() const;
  [[nodiscard]] std::vector<NamedMetric> MakeMetrics() const;

  [[nodiscard]] EvalShard OwnShard() const;

  Communicator& comm_;
  int stages_ = 1;
  bool any_split_ = false;
  const Dataset& data_;
  std::int64_t batch_;
  std::string_view unit_;
  std::vector<MetricSpec> metrics_;
  std::vector<std::int64_t> cuts_;
  EngineRing ring_;
};

}  // namespace gaccd
