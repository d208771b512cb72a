#include "daemon/train/batch_feed.h"

#include <utility>

namespace gaccd {
namespace {

// The engine holds some of them, and half of the others are read in one go.
constexpr int kSlotsForDevices = 16;

}  // namespace

Result<BatchFeed> BatchFeed::Make(const Dataset& data, const SampleOrder& order,
                                  const UpdateSchedule& schedule, const Plan& plan, int rank,
                                  ProgramGenerator program) {
  BatchFeed feed(data, order, schedule, {plan, program(plan)}, rank);
  if (schedule.tail_samples() > 0) {
    GACCD_ASSIGN_OR_RETURN(const Plan tail, plan.ForSamples(schedule.tail_samples()));
    feed.tail_ = {tail, program(tail)};
  }
  return feed;
}

std::set<std::int64_t> BatchFeed::BatchSizes() const {
  std::set<std::int64_t> sizes;
  for (const Work* work : {&work_, tail_ ? &*tail_ : &work_}) {
    const Plan& plan = work->plan;
    // At most two sizes a plan, as they fall with the step.
    for (const std::int64_t step : {std::int64_t{0}, plan.accum_steps() - 1}) {
      sizes.insert(plan.MicroBatch(rank_, step));
    }
  }
  sizes.erase(0);
  return sizes;
}

Result<std::unique_ptr<IndexSource>> BatchFeed::IndicesFrom(std::int64_t index) const {
  GACCD_ASSIGN_OR_RETURN(
      TrainIndices indices,
      TrainIndices::Make(order_, schedule_, work_.plan, rank_, index, work_.program.passes));
  if (groups_by_length()) indices.GroupByLength(*data_);
  return std::unique_ptr<IndexSource>(std::make_unique<TrainIndices>(std::move(indices)));
}

Status BatchFeed::Start(Engine& engine, std::int64_t index) {
  batches_.reset();  // its ring is used again
  GACCD_ASSIGN_OR_RETURN(auto indices, IndicesFrom(index));
  PrefetcherOptions options{
      .held = engine.held_batches(), .memory = ring_.MemoryOf(engine), .cuts = cuts_};
  if (options.held > 0) options.slots = kSlotsForDevices;
  GACCD_ASSIGN_OR_RETURN(batches_, Prefetcher::Start(*data_, std::move(indices), options));
  return Status::Ok();
}

Result<UpdateReplay> BatchFeed::Replay(Engine& engine, const Update& update) {
  GACCD_ASSIGN_OR_RETURN(auto indices, IndicesFrom(update.index));
  UpdateReplay replay{
      .batches = nullptr, .steps = PlanOf(update).accum_steps(), .spec = data_->spec()};
  GACCD_ASSIGN_OR_RETURN(replay.batches, Prefetcher::Start(*data_, std::move(indices),
                                                           {.held = engine.held_batches(),
                                                            .memory = replay_ring_.MemoryOf(engine),
                                                            .cuts = cuts_}));
  return replay;
}

}  // namespace gaccd
