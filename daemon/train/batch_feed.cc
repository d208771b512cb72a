#include "daemon/train/batch_feed.h"

#include <algorithm>

namespace gaccd {
namespace {

// The engine holds some of them, and half of the others are read at once.
constexpr int kSlotsForDevices = 16;

}  // namespace

Result<BatchFeed> BatchFeed::Make(const Dataset& data, const SampleOrder& order,
                                  const UpdateSchedule& schedule, const Plan& plan, int rank,
                                  ProgramGenerator program) {
  BatchFeed feed(data, order, schedule, program, plan, rank);
  GACCD_RETURN_IF_ERROR(feed.ChangePlan(plan));
  return feed;
}

Status BatchFeed::ChangePlan(const Plan& plan) {
  GACCD_ASSIGN_OR_RETURN(const auto plans, PlansBySize(plan, schedule_));
  plan_ = plan;
  work_.clear();
  for (const auto& [samples, own] : plans) work_.emplace(samples, Work{own, program_(own)});
  return Status::Ok();
}

std::set<std::int64_t> BatchFeed::BatchSizes() const {
  std::set<std::int64_t> sizes;
  for (std::int64_t size = 1; any_load_ && size <= plan_.request().micro_batch; ++size) {
    sizes.insert(size);
  }
  for (const auto& [samples, work] : work_) sizes.merge(work.plan.MicroBatchSizes(rank_));
  return sizes;
}

std::int64_t BatchFeed::max_micro_steps() const {
  std::int64_t most = any_load_ ? 2 : 1;
  for (const auto& [samples, work] : work_) most = std::max(most, work.plan.accum_steps());
  return most;
}

std::int64_t BatchFeed::max_samples() const {
  std::int64_t most = 0;
  for (const auto& [samples, work] : work_) most = std::max(most, work.plan.Load(rank_));
  return most;
}

Result<std::unique_ptr<IndexSource>> BatchFeed::IndicesFrom(std::int64_t index) const {
  GACCD_ASSIGN_OR_RETURN(TrainIndices indices,
                         TrainIndices::Make(order_, schedule_, plan_, rank_, index,
                                            work_.begin()->second.program.passes));
  if (!cuts_.empty()) indices.GroupByLength(*data_);
  if (any_load_) indices.AllowAnyLoad();
  return std::unique_ptr<IndexSource>(std::make_unique<TrainIndices>(std::move(indices)));
}

Status BatchFeed::Start(Engine& engine, std::int64_t index) {
  batches_.reset();  // first, as its ring is reused
  GACCD_ASSIGN_OR_RETURN(auto indices, IndicesFrom(index));
  PrefetcherOptions options{
      .held = engine.held_batches(), .memory = ring_.MemoryFor(engine), .cuts = cuts_};
  if (options.held > 0) options.slots = kSlotsForDevices;
  GACCD_ASSIGN_OR_RETURN(batches_, Prefetcher::Start(*data_, std::move(indices), options));
  return Status::Ok();
}

Result<UpdateReplay> BatchFeed::Replay(Engine& engine, const Update& update) {
  GACCD_ASSIGN_OR_RETURN(auto indices, IndicesFrom(update.index));
  UpdateReplay replay{
      .batches = nullptr, .steps = PlanFor(update).accum_steps(), .spec = data_->spec()};
  GACCD_ASSIGN_OR_RETURN(replay.batches,
                         Prefetcher::Start(*data_, std::move(indices),
                                           {.held = engine.held_batches(),
                                            .memory = replay_ring_.MemoryFor(engine),
                                            .cuts = cuts_}));
  return replay;
}

}  // namespace gaccd
