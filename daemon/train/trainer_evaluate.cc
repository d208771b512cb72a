// Evaluations: each rank takes its shard of the evaluation data, between two updates.
#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "collectives/base/seconds.h"
#include "collectives/base/strings.h"
#include "daemon/data/index_source.h"
#include "daemon/train/trainer.h"

namespace gaccd {
namespace {

// The least that any rank has: so often can they all be asked.
std::int64_t LeastEvalBatches(std::int64_t samples, int ranks, const Plan& plan) {
  const std::int64_t micro = plan.request().micro_batch;
  std::int64_t least = samples;
  for (int rank = 0; rank < ranks; ++rank) {
    least = std::min(least, (ShardOf(samples, rank, ranks).count + micro - 1) / micro);
  }
  return least;
}

}  // namespace

// The attempt before may have been stopped inside it.
Result<bool> Trainer::EvaluateFirst(RunReporter& reporter, TrainingSummary* summary) {
  GACCD_ASSIGN_OR_RETURN(const bool evaluated, EvaluateNow(schedule_.At(first_update_ - 1),
                                                           first_update_, reporter, summary));
  return evaluated && (first_update_ == schedule_.updates() || !Decision().stops());
}

Result<bool> Trainer::EvaluateNow(const Update& update, std::int64_t step, RunReporter& reporter,
                                  TrainingSummary* summary) {
  Note(heartbeat::Phase::kEvaluate, step);
  GACCD_ASSIGN_OR_RETURN(std::optional<EvalRecord> record, Evaluate(step));
  if (!record) return false;
  record->epoch = update.epoch + 1;
  record->step = step;
  summary->accuracy = record->accuracy;
  reporter.Eval(*record);
  return true;
}

Result<std::optional<EvalRecord>> Trainer::Evaluate(std::int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  const EvalShard shard = ShardOf(eval_->size(), comm_.rank(), comm_.size());
  GACCD_ASSIGN_OR_RETURN(
      auto batches,
      Prefetcher::Start(*eval_, std::make_unique<EvalIndices>(shard, plan_.request().micro_batch),
                        {.memory = KeptMemory(&eval_memory_)}));
  // samples, loss sum, correct: counts stay exact in a double up to 2^53.
  std::array<double, 3> sums{};
  bool has_accuracy = eval_->spec().classes > 0;
  const std::int64_t least = LeastEvalBatches(eval_->size(), comm_.size(), plan_);
  std::int64_t done = 0;
  if (stops_ != nullptr) stops_->BeginEvaluation();
  while (const BatchView* batch = batches->Next()) {
    if (stops_ != nullptr && done > 0 && done < least) {
      Note(heartbeat::Phase::kReduce, step, done);  // now and then they ask each other
      GACCD_ASSIGN_OR_RETURN(const StopDecision here, stops_->BetweenBatches(done, least));
      if (here.stops()) return std::optional<EvalRecord>();
    }
    Note(heartbeat::Phase::kEvaluate, step, ++done);
    GACCD_ASSIGN_OR_RETURN(const Evaluation result, engine_->Evaluate(*batch));
    sums[0] += static_cast<double>(result.samples);
    sums[1] += result.loss_sum;
    sums[2] += result.correct.value_or(0);
  }
  const auto view = View(std::span<double>(sums));
  Note(heartbeat::Phase::kReduce, step);  // who is not here yet is waited for
  GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(view, view));
  Note(heartbeat::Phase::kEvaluate, step);
  EvalRecord record{.samples = static_cast<std::int64_t>(sums[0]), .loss = sums[1] / sums[0]};
  if (record.samples != eval_->size()) {
    return Status(ErrorKind::kInternal, StrCat("evaluation: expected ", eval_->size(),
                                               " samples, counted ", record.samples));
  }
  if (has_accuracy) record.accuracy = sums[2] / sums[0];
  record.dur_s = SecondsSince(start);
  return std::optional(record);
}

}  // namespace gaccd
