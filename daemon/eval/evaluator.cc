#include "daemon/eval/evaluator.h"

#include <chrono>

#include "collectives/base/strings.h"
#include "collectives/base/ticks.h"
#include "collectives/base/time.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/data/index_source.h"
#include "daemon/data/prefetcher.h"

namespace gaccd {
namespace {

// The values of a tensor of a batch; empty if there is none with this name.
template <typename T>
std::span<const T> FindTensor(const SampleSpec& spec, const BatchView& batch,
                              std::string_view name) {
  for (std::size_t i = 0; i < spec.tensors.size(); ++i) {
    const TensorSpec& tensor = spec.tensors[i];
    if (tensor.name != name) continue;
    const auto bytes = static_cast<std::size_t>(batch.samples * RowBytes(tensor, batch.length));
    return {batch.tensor<T>(i), bytes / sizeof(T)};
  }
  return {};
}

EvaluatedBatch MakeEvaluatedBatch(const SampleSpec& spec, const BatchView& batch,
                                  const Evaluation& evaluation) {
  return {.labels = FindTensor<std::int32_t>(spec, batch, "labels"),
          .weights = FindTensor<float>(spec, batch, "weights"),
          .ranks = evaluation.ranks,
          .best = evaluation.best,
          .ignored_label = spec.ignored_label,
          .targets = FindTensor<float>(spec, batch, "targets"),
          .prediction = evaluation.prediction,
          .loss_sum = evaluation.loss_sum,
          .divisor = evaluation.divisor};
}

}  // namespace

bool EvaluationIsDue(const UpdateSchedule& schedule, std::int64_t every_updates,
                     std::int64_t step) {
  if (step == 0) return false;
  if (every_updates > 0 && step % every_updates == 0) return true;
  return step == schedule.updates() || schedule.At(step - 1).epoch_end;
}

std::vector<MetricSpec> SelectMetrics(const Job& job, const SampleSpec& spec) {
  if (GetLossKind(job.model.loss) == LossKind::kOutput) return {};
  return job.metric.empty() ? DefaultMetrics(spec) : job.metric;
}

Result<Better> FindBetter(const Job& job, const SampleSpec& spec) {
  const std::string& name = job.evaluation.metric;
  if (name == kLossName) return Better::kSmaller;
  std::string names(kLossName);
  for (const MetricSpec& metric : SelectMetrics(job, spec)) {
    const MetricKind kind = DescribeMetric(metric);
    if (kind.name == name) return kind.better;
    names += StrCat(", ", kind.name);
  }
  return Status(ErrorKind::kConfig,
                StrCat("evaluation.metric: expected one of ", names, ", found ", name));
}

Evaluator::Evaluator(Communicator& comm, const Dataset& data, std::int64_t batch,
                     std::string_view unit, std::vector<MetricSpec> metrics)
    : comm_(comm), data_(data), batch_(batch), unit_(unit), metrics_(std::move(metrics)) {}

// Uses the targets of the first sample as `near`.
std::vector<NamedMetric> Evaluator::MakeMetrics() const {
  BatchMemory first(data_.spec(), 1);
  data_.Gather(std::array<std::int64_t, 1>{0}, first.view());
  const auto near = FindTensor<float>(data_.spec(), first.view(), "targets");
  std::vector<NamedMetric> metrics;
  for (const MetricSpec& spec : metrics_) {
    metrics.push_back(MakeMetric(spec, data_.spec(), near));
  }
  return metrics;
}

EvalShard Evaluator::OwnShard() const {
  return MakeEvalShard(data_.size(), comm_.rank() / stages_, comm_.size() / stages_,
                       any_split_ ? batch_ : 1);
}

std::set<std::int64_t> Evaluator::BatchSizes() const { return EvalBatchSizes(OwnShard(), batch_); }

std::int64_t Evaluator::FewestBatches() const {
  // The last shard is never larger than another one.
  const int shards = comm_.size() / stages_;
  const EvalShard shard = MakeEvalShard(data_.size(), shards - 1, shards, any_split_ ? batch_ : 1);
  return (shard.count + batch_ - 1) / batch_;
}

Result<bool> Evaluator::EvaluateShard(Engine& engine, std::int64_t step,
                                      const ProgressNotifier& progress,
                                      const BetweenBatches& between, Sums& sums,
                                      std::span<const NamedMetric> metrics) {
  auto indices = std::make_unique<EvalIndices>(OwnShard(), batch_);
  if (!cuts_.empty() && !any_split_) indices->GroupByLength(data_);
  GACCD_ASSIGN_OR_RETURN(const auto batches,
                         Prefetcher::Start(data_, std::move(indices),
                                           {.memory = ring_.MemoryFor(engine), .cuts = cuts_}));
  std::int64_t done = 0;
  const auto next = [&] {
    if (!batches->ready()) progress.SetPhase(heartbeat::Phase::kLoad, step, done);
    return batches->Next();
  };
  while (const BatchView* batch = next()) {
    if (done > 0) {
      GACCD_ASSIGN_OR_RETURN(const bool stops, between(done));
      if (stops) return false;
    }
    progress.SetPhase(heartbeat::Phase::kEvaluate, step, ++done);
    GACCD_RETURN_IF_ERROR(batches->status());
    GACCD_ASSIGN_OR_RETURN(const Evaluation result, engine.Evaluate(*batch));
    sums.samples += static_cast<double>(result.samples);
    sums.loss += result.loss_sum;
    sums.divisor += result.divisor;
    const std::array found = {result.loss_sum, result.divisor};
    if (any_split_) AddToBins(std::span<const double>(found), sums.bins);
    if (result.samples == 0) continue;  // not the last stage of a pipeline
    const EvaluatedBatch evaluated = MakeEvaluatedBatch(data_.spec(), *batch, result);
    for (const NamedMetric& named : metrics) named.metric->Add(evaluated);
  }
  return true;
}

Status Evaluator::SumOverAllRanks(Sums& sums) {
  const auto view =
      View(std::span(reinterpret_cast<double*>(&sums), sizeof(Sums) / sizeof(double)));
  GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(view, view));
  if (!any_split_) return Status::Ok();
  std::array<double, 2> read{};
  ReadBins(sums.bins, std::span<double>(read));
  sums.loss = read[0];
  sums.divisor = read[1];
  return Status::Ok();
}

Result<std::optional<EvalRecord>> Evaluator::Evaluate(Engine& engine, const EvaluationTime& time,
                                                      StopAgreement* stops,
                                                      const ProgressNotifier& progress) {
  const std::int64_t step = time.step;
  const auto start = std::chrono::steady_clock::now();
  progress.SetPhase(heartbeat::Phase::kEvaluate, step);
  Sums sums;
  const std::vector<NamedMetric> metrics = MakeMetrics();
  if (stops != nullptr) {
    const std::int64_t fewest = FewestBatches();
    stops->BeginEvaluation();
    const BetweenBatches between = [&](std::int64_t done) -> Result<bool> {
      if (done >= fewest) return false;
      progress.SetPhase(heartbeat::Phase::kReduce, step, done);  // may be collective
      GACCD_ASSIGN_OR_RETURN(const StopDecision here, stops->BetweenBatches(done, fewest));
      return here.stops();
    };
    GACCD_ASSIGN_OR_RETURN(const bool done,
                           EvaluateShard(engine, step, progress, between, sums, metrics));
    if (!done) return std::optional<EvalRecord>();
  } else {
    const Agreement worked = WorkTogether(comm_, [&](const TickFunction& tick) -> Status {
      TimedTicks ticks(tick);
      const BetweenBatches between = [&](std::int64_t) -> Result<bool> {
        GACCD_RETURN_IF_ERROR(ticks.Done());
        return false;
      };
      return EvaluateShard(engine, step, progress, between, sums, metrics).status();
    });
    GACCD_RETURN_IF_ERROR(worked.status);
  }
  progress.SetPhase(heartbeat::Phase::kReduce, step);  // waits for the other ranks
  GACCD_RETURN_IF_ERROR(SumOverAllRanks(sums));
  GACCD_RETURN_IF_ERROR(SumOverRanks(metrics, comm_));
  progress.SetPhase(heartbeat::Phase::kEvaluate, step);
  EvalRecord record{.epoch = time.epoch,
                    .step = step,
                    .samples = static_cast<std::int64_t>(sums.samples),
                    .loss = sums.loss / sums.divisor,
                    .divisor = sums.divisor,
                    .unit = std::string(unit_)};
  if (record.samples != data_.size()) {
    return Status(ErrorKind::kInternal, StrCat("evaluation: expected ", data_.size(),
                                               " samples, counted ", record.samples));
  }
  if (!(sums.divisor > 0)) {
    return Status(ErrorKind::kData,
                  StrCat("no prediction of the evaluation counts: expected a label that is not "
                         "ignored, with a weight above 0, found a sum of weights of ",
                         sums.divisor));
  }
  for (const NamedMetric& named : metrics) {
    record.metrics.push_back({named.name, named.metric->Value()});
  }
  record.dur_s = SecondsSince(start);
  return std::optional(record);
}

}  // namespace gaccd
