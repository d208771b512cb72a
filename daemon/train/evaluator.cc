#include "daemon/train/evaluator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "collectives/base/seconds.h"
#include "collectives/base/strings.h"
#include "daemon/data/index_source.h"
#include "daemon/data/prefetcher.h"

namespace gaccd {

std::set<std::int64_t> Evaluator::BatchSizes() const {
  const EvalShard shard = ShardOf(data_.size(), comm_.rank(), comm_.size());
  std::set<std::int64_t> sizes;
  if (shard.count >= batch_) sizes.insert(batch_);
  if (shard.count % batch_ > 0) sizes.insert(shard.count % batch_);
  return sizes;
}

bool Evaluator::Due(std::int64_t step) const {
  if (step == 0) return false;
  return step == schedule_.updates() || schedule_.At(step - 1).epoch_end;
}

std::int64_t Evaluator::FewestBatches() const {
  // The last rank has as few samples as any.
  const EvalShard shard = ShardOf(data_.size(), comm_.size() - 1, comm_.size());
  return (shard.count + batch_ - 1) / batch_;
}

Result<std::optional<EvalRecord>> Evaluator::Evaluate(Engine& engine, std::int64_t step,
                                                      StopAgreement* stops,
                                                      const PhaseNotes& notes) {
  const auto start = std::chrono::steady_clock::now();
  notes.Note(heartbeat::Phase::kEvaluate, step);
  GACCD_ASSIGN_OR_RETURN(
      const auto batches,
      Prefetcher::Start(
          data_,
          std::make_unique<EvalIndices>(ShardOf(data_.size(), comm_.rank(), comm_.size()), batch_),
          {.memory = ring_.MemoryOf(engine)}));
  // samples, loss sum, divisor, correct: counts stay exact in a double up to 2^53.
  std::array<double, 4> sums{};
  const std::int64_t fewest = FewestBatches();
  std::int64_t done = 0;
  if (stops != nullptr) stops->BeginEvaluation();
  while (const BatchView* batch = batches->Next()) {
    if (stops != nullptr && done > 0 && done < fewest) {
      notes.Note(heartbeat::Phase::kReduce, step, done);  // now and then they ask each other
      GACCD_ASSIGN_OR_RETURN(const StopDecision here, stops->BetweenBatches(done, fewest));
      if (here.stops()) return std::optional<EvalRecord>();
    }
    notes.Note(heartbeat::Phase::kEvaluate, step, ++done);
    GACCD_ASSIGN_OR_RETURN(const Evaluation result, engine.Evaluate(*batch));
    sums[0] += static_cast<double>(result.samples);
    sums[1] += result.loss_sum;
    sums[2] += result.divisor;
    sums[3] += result.correct.value_or(0);
  }
  const auto view = View(std::span<double>(sums));
  notes.Note(heartbeat::Phase::kReduce, step);  // who is not here yet is waited for
  GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(view, view));
  notes.Note(heartbeat::Phase::kEvaluate, step);
  EvalRecord record{.epoch = schedule_.At(step - 1).epoch + 1,
                    .step = step,
                    .samples = static_cast<std::int64_t>(sums[0]),
                    .loss = sums[1] / sums[2],
                    .divisor = sums[2],
                    .unit = unit_};
  if (record.samples != data_.size()) {
    return Status(ErrorKind::kInternal, StrCat("evaluation: expected ", data_.size(),
                                               " samples, counted ", record.samples));
  }
  if (data_.spec().classes > 0) record.accuracy = sums[3] / sums[2];
  record.dur_s = SecondsSince(start);
  return std::optional(record);
}

}  // namespace gaccd
