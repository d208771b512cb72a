#include "daemon/data/index_source.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

// Samples of equal length are sorted by number, so the result does not depend on the input order.
void SortByLength(const Dataset& data, std::span<std::int64_t> samples) {
  std::ranges::sort(samples, {},
                    [&](std::int64_t sample) { return std::pair(data.Length(sample), sample); });
}

std::uint32_t ReverseBits(std::int64_t value) {
  auto bits = static_cast<std::uint32_t>(value);
  std::uint32_t reversed = 0;
  for (int i = 0; i < 32; ++i, bits >>= 1) reversed = reversed << 1 | (bits & 1);
  return reversed;
}

// Where the micro-batches of a rank begin among the samples of the update, sorted by length.
// Numbers with reversed bits are evenly distributed in any range of consecutive numbers, so the
// micro-batches of a rank have all lengths.
std::vector<std::int64_t> BeginsByLength(const Plan& plan, std::int64_t rank) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(plan.micro_batches()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, ReverseBits);
  const std::int64_t first = plan.FirstMicroBatch(rank);
  std::vector<std::int64_t> begins(static_cast<std::size_t>(plan.FilledSteps(rank)));
  std::int64_t before = 0;
  for (const std::int64_t batch : order) {
    if (batch >= first && batch - first < std::ssize(begins)) {
      begins[static_cast<std::size_t>(batch - first)] = before;
    }
    before += plan.SamplesBefore(batch + 1) - plan.SamplesBefore(batch);
  }
  return begins;
}

}  // namespace

Result<TrainIndices> TrainIndices::Make(const SampleOrder& order, const UpdateSchedule& schedule,
                                        const Plan& plan, std::int64_t rank,
                                        std::int64_t first_update, int passes) {
  if (plan.effective_batch() != schedule.request().batch) {
    return Status(ErrorKind::kConfig,
                  StrCat("plan and schedule have different batches: the plan has ",
                         plan.effective_batch(), ", the schedule ", schedule.request().batch));
  }
  if (order.size() != schedule.request().dataset_size) {
    return Status(ErrorKind::kConfig,
                  StrCat("order and schedule belong to different data sets: the order has ",
                         order.size(), " samples, the schedule ", schedule.request().dataset_size));
  }
  if (rank < 0 || rank >= plan.world()) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected a rank in [0, ", plan.world(), "), found ", rank));
  }
  if (first_update < 0 || first_update > schedule.updates()) {
    return Status(ErrorKind::kConfig, StrCat("expected a first update in [0, ", schedule.updates(),
                                             "], found ", first_update));
  }
  GACCD_ASSIGN_OR_RETURN(auto plans, PlansBySize(plan, schedule));
  return TrainIndices(order, schedule, std::move(plans), rank, first_update, passes);
}

TrainIndices::TrainIndices(const SampleOrder& order, const UpdateSchedule& schedule,
                           std::map<std::int64_t, Plan> plans, std::int64_t rank,
                           std::int64_t first_update, int passes)
    : order_(order),
      schedule_(schedule),
      plans_(std::move(plans)),
      rank_(rank),
      update_(first_update),
      passes_(passes) {
  EnterUpdate();
}

std::int64_t TrainIndices::max_samples() const {
  if (any_load_) return plans_.begin()->second.request().micro_batch;
  std::int64_t maximum = 0;
  for (const auto& [samples, plan] : plans_) {
    for (const std::int64_t size : plan.MicroBatchSizes(rank_)) maximum = std::max(maximum, size);
  }
  return maximum;
}

void TrainIndices::EnterUpdate() {
  if (update_ >= schedule_.updates()) return;
  const Update update = schedule_.At(update_);
  const Plan& plan = plans_.at(update.samples);
  begin_ = update.first;
  samples_ = update.samples;
  position_ = begin_ + plan.Offset(rank_);
  step_ = 0;
  if (by_length_ == nullptr) return;
  grouped_.resize(static_cast<std::size_t>(plan.any_split() ? samples_ : plan.Load(rank_)));
  order_.Fill(plan.any_split() ? begin_ : position_, grouped_);
  SortByLength(*by_length_, grouped_);
  taken_ = 0;
}

void TrainIndices::GroupByLength(const Dataset& data) {
  by_length_ = &data;
  // A rank may have one sample more in a smaller update than in a full one.
  std::int64_t maximum = 0;
  for (const auto& [samples, plan] : plans_) {
    maximum = std::max(maximum, plan.any_split() ? samples : plan.Load(rank_));
    if (plan.any_split()) begins_[samples] = BeginsByLength(plan, rank_);
  }
  grouped_.reserve(static_cast<std::size_t>(maximum));
  EnterUpdate();
}

std::int64_t TrainIndices::Next(std::span<std::int64_t> out) {
  if (update_ >= schedule_.updates()) return kEnd;
  const Plan& plan = plans_.at(samples_);
  augmentation_seed_ = StreamKey(order_.seed(), static_cast<std::uint64_t>(update_));
  in_update_ = position_ - begin_;
  const std::int64_t samples = plan.MicroBatch(rank_, step_);
  const auto count = static_cast<std::size_t>(samples);
  if (by_length_ == nullptr) {
    order_.Fill(position_, out.first(count));
  } else {
    if (plan.any_split() && count > 0) {
      taken_ = static_cast<std::size_t>(begins_.at(samples_)[static_cast<std::size_t>(step_)]);
    }
    std::ranges::copy(std::span(grouped_).subspan(taken_, count), out.begin());
    taken_ += count;
  }
  taken_from_ = position_;
  of_update_ = samples_;
  position_ += samples;
  if (++step_ == plan.accum_steps()) {
    pass_ = (pass_ + 1) % passes_;
    if (pass_ == 0) ++update_;
    EnterUpdate();
  }
  return samples;
}

EvalShard MakeEvalShard(std::int64_t size, std::int64_t rank, std::int64_t world,
                        std::int64_t unit) {
  const std::int64_t units = size / unit + (size % unit > 0 ? 1 : 0);
  const std::int64_t each = units / world;
  const std::int64_t more = units % world;       // the first `more` ranks have one more
  const auto begin = [&](std::int64_t before) {  // the last unit may be smaller
    const std::int64_t first = before * each + std::min(before, more);
    return first < units ? first * unit : size;
  };
  return {begin(rank), begin(rank + 1) - begin(rank)};
}

std::set<std::int64_t> EvalBatchSizes(const EvalShard& shard, std::int64_t batch) {
  std::set<std::int64_t> sizes;
  if (shard.count >= batch) sizes.insert(batch);
  if (shard.count % batch > 0) sizes.insert(shard.count % batch);
  return sizes;
}

void EvalIndices::GroupByLength(const Dataset& data) {
  grouped_.resize(static_cast<std::size_t>(shard_.count));
  std::iota(grouped_.begin(), grouped_.end(), shard_.first);
  SortByLength(data, grouped_);
}

std::int64_t EvalIndices::Next(std::span<std::int64_t> out) {
  if (shard_.count == 0) return kEnd;
  const std::int64_t samples = std::min(batch_, shard_.count);
  out = out.first(static_cast<std::size_t>(samples));
  if (grouped_.empty()) {
    std::iota(out.begin(), out.end(), shard_.first);
  } else {
    const auto left = std::span(grouped_).last(static_cast<std::size_t>(shard_.count));
    std::ranges::copy(left.first(out.size()), out.begin());
  }
  shard_.first += samples;
  shard_.count -= samples;
  return samples;
}

}  // namespace gaccd
