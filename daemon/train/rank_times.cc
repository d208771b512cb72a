#include "daemon/train/rank_times.h"

#include <algorithm>

namespace gaccd {

RankTimes::RankTimes(int rank, int world)
    : rank_(static_cast<std::size_t>(rank)),
      world_(static_cast<std::size_t>(world)),
      summed_(world > 1 && world <= kMaxRanks) {}

void RankTimes::Pack(std::span<double> control_words) const {
  if (!summed_) return;
  std::ranges::fill(control_words, 0.0);
  control_words[kParts * rank_ + kData] = mine_.data_s;
  control_words[kParts * rank_ + kCompute] = mine_.compute_s;
  control_words[kParts * rank_ + kStopped] = mine_.stopped_s;
}

template <typename Time>
double RankTimes::Median(const Time& time_of_rank) {
  scratch_.clear();
  for (std::size_t r = 0; r < world_; ++r) scratch_.push_back(time_of_rank(r));
  const auto middle = scratch_.begin() + (std::ssize(scratch_) - 1) / 2;
  std::nth_element(scratch_.begin(), middle, scratch_.end());
  return *middle;
}

std::string_view RankTimes::SlowPhase(const Loss& loss) {
  if (loss.stopped_s > 0 && loss.stopped_s >= kStoppedShare * loss.lost_s) return "stopped";
  return loss.data_s > loss.compute_s ? "data" : "compute";
}

void RankTimes::SetPlanned(std::span<const double> planned) {
  planned_.assign(world_, 1);
  max_planned_ = 1;
  if (planned.empty()) return;
  const double median = Median([planned](std::size_t r) { return planned[r]; });
  if (!(median > 0)) return;  // most ranks have no sample
  for (std::size_t r = 0; r < world_; ++r) planned_[r] = std::max(1.0, planned[r] / median);
  max_planned_ = *std::ranges::max_element(planned_);
}

template <typename Time>
double RankTimes::Expected(const Time& time_of_rank) {
  return max_planned_ * Median([&](std::size_t r) { return time_of_rank(r) / planned_[r]; });
}

std::optional<Straggler> RankTimes::Unpack(std::span<const double> control_words,
                                           std::span<const double> planned) {
  busy_s_.clear();
  if (!summed_) return std::nullopt;
  SetPlanned(planned);
  const auto part = [&](Part which) {
    return [control_words, which](std::size_t r) { return control_words[kParts * r + which]; };
  };
  const auto busy = [&](std::size_t r) {
    return std::max(part(kData)(r) + part(kCompute)(r), part(kStopped)(r));
  };
  std::size_t slowest = 0;
  for (std::size_t r = 1; r < world_; ++r) {
    if (busy(r) > busy(slowest)) slowest = r;
  }
  if (!(busy(slowest) > 0)) return std::nullopt;
  for (std::size_t r = 0; r < world_; ++r) busy_s_.push_back(part(kData)(r) + part(kCompute)(r));
  const auto excess = [&](const auto& time) { return time(slowest) - Expected(time); };
  const double expected = Expected(busy);
  const Loss loss{.data_s = excess(part(kData)),
                  .compute_s = excess(part(kCompute)),
                  .stopped_s = excess(part(kStopped)),
                  .lost_s = std::max(0.0, busy(slowest) - expected)};
  const auto rank = static_cast<int>(slowest);
  Record(rank, loss, mine_.dur_s);
  return Straggler{.rank = rank,
                   .phase = SlowPhase(loss),
                   .ratio = expected > 0 ? std::max(1.0, busy(slowest) / expected) : 1,
                   .wait_s = busy(slowest) - busy(rank_),
                   .slow = DetectSlowRank(rank, mine_.dur_s)};
}

void RankTimes::Add(const Loss& loss, Loss* sum) {
  sum->data_s += loss.data_s;
  sum->compute_s += loss.compute_s;
  sum->stopped_s += loss.stopped_s;
  sum->lost_s += loss.lost_s;
}

void RankTimes::Record(int rank, const Loss& loss, double dur_s) {
  if (window_.empty() || window_.back().dur_s + dur_s > kSpanS) window_.emplace_back();
  Span& newest = window_.back();
  ++newest.updates;
  ++window_updates_;
  newest.dur_s += dur_s;
  Add(loss, &newest.losses[rank]);
  double rest_s = 0;
  for (const Span& span : window_) rest_s += span.dur_s;
  while (window_.size() > 1 && window_updates_ - window_.front().updates >= kWindow &&
         rest_s - window_.front().dur_s >= kWindowS) {
    window_updates_ -= window_.front().updates;
    rest_s -= window_.front().dur_s;
    window_.pop_front();
  }
}

std::optional<TimeLost> RankTimes::DetectSlowRank(int rank, double dur_s) {
  Loss sum;
  double total_s = 0;
  const Span* largest = nullptr;  // the first of equal ones
  double largest_s = 0;
  int costly = 0;
  for (const Span& span : window_) {
    total_s += span.dur_s;
    const auto found = span.losses.find(rank);
    if (found == span.losses.end()) continue;
    const Loss& loss = found->second;
    Add(loss, &sum);
    if (loss.lost_s > kShare * span.dur_s) ++costly;
    if (largest != nullptr && loss.lost_s <= largest_s) continue;
    largest = &span;
    largest_s = loss.lost_s;
  }
  if (sum.lost_s < kShare / 2 * total_s) warned_.erase(rank);
  const double rest_s = total_s - largest->dur_s;
  const bool slow = sum.lost_s - largest_s > kShare * rest_s && costly >= kMinSpans;
  const bool settled = window_updates_ >= (total_s < kSettledS ? kWindow : kSettled);
  if (!slow) slow_s_.erase(rank);
  if (!slow || !settled) return std::nullopt;
  if (largest != &window_.back()) slow_s_[rank] += dur_s;
  const bool noticed = std::max(rest_s, slow_s_[rank]) >= kMinS;
  if (!noticed || !warned_.insert(rank).second) return std::nullopt;
  // A stop is counted when it is detected, which may be one update later, or between two updates.
  return TimeLost{.lost_s = std::min(sum.lost_s, total_s),
                  .total_s = total_s,
                  .updates = window_updates_,
                  .phase = SlowPhase(sum)};
}

}  // namespace gaccd
