#include "daemon/train/rank_times.h"

#include <algorithm>

namespace gaccd {

RankTimes::RankTimes(int rank, int world)
    : rank_(static_cast<std::size_t>(rank)),
      world_(static_cast<std::size_t>(world)),
      summed_(world > 1 && world <= kMostRanks) {}

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

std::string_view RankTimes::PhaseOf(const Loss& loss) {
  if (loss.stopped_s > 0 && loss.stopped_s >= kStoppedShare * loss.lost_s) return "stopped";
  return loss.data_s > loss.compute_s ? "data" : "compute";
}

std::optional<Straggler> RankTimes::Unpack(std::span<const double> control_words) {
  if (!summed_) return std::nullopt;
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
  const auto excess = [&](const auto& time) { return time(slowest) - Median(time); };
  const double median = Median(busy);
  window_.push_back({.rank = static_cast<int>(slowest),
                     .data_s = excess(part(kData)),
                     .compute_s = excess(part(kCompute)),
                     .stopped_s = excess(part(kStopped)),
                     .lost_s = busy(slowest) - median,
                     .dur_s = mine_.dur_s});
  if (window_.size() > kWindow) window_.pop_front();
  return Straggler{.rank = static_cast<int>(slowest),
                   .phase = PhaseOf(window_.back()),
                   .ratio = median > 0 ? busy(slowest) / median : 1,
                   .wait_s = busy(slowest) - busy(rank_),
                   .slow = BecomesSlow()};
}

std::optional<TimeLost> RankTimes::BecomesSlow() {
  const int rank = window_.back().rank;
  Loss sum{.rank = rank};
  const Loss* largest = nullptr;  // the first of equal ones
  int costly = 0;
  for (const Loss& one : window_) {
    sum.dur_s += one.dur_s;
    if (one.rank != rank) continue;
    sum.data_s += one.data_s;
    sum.compute_s += one.compute_s;
    sum.stopped_s += one.stopped_s;
    sum.lost_s += one.lost_s;
    if (one.lost_s > kShare * one.dur_s) ++costly;
    if (largest == nullptr || one.lost_s > largest->lost_s) largest = &one;
  }
  if (sum.lost_s < kShare / 2 * sum.dur_s) told_.erase(rank);
  const double rest_s = sum.dur_s - largest->dur_s;
  const bool slow = sum.lost_s - largest->lost_s > kShare * rest_s && costly >= kFewest;
  const bool settled = window_.size() >= (sum.dur_s < kSettledS ? kWindow : kSettled);
  if (!slow) slow_s_.erase(rank);
  if (!slow || !settled) return std::nullopt;
  if (largest != &window_.back()) slow_s_[rank] += window_.back().dur_s;
  const bool noticed = std::max(rest_s, slow_s_[rank]) >= kLeastS;
  if (!noticed || !told_.insert(rank).second) return std::nullopt;
  // A stop is counted when it is noticed, which may be an update later, or between two of them.
  return TimeLost{.lost_s = std::min(sum.lost_s, sum.dur_s),
                  .of_s = sum.dur_s,
                  .updates = static_cast<int>(window_.size()),
                  .phase = PhaseOf(sum)};
}

}  // namespace gaccd
