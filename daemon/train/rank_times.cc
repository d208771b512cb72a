#include "daemon/train/rank_times.h"

#include <algorithm>

namespace gaccd {

RankTimes::RankTimes(int rank, int world)
    : rank_(static_cast<std::size_t>(rank)),
      summed_(world > 1 && world <= kMostRanks),
      busy_(static_cast<std::size_t>(world)) {}

void RankTimes::Took(double data_s, double compute_s) {
  data_s_ = data_s;
  compute_s_ = compute_s;
}

void RankTimes::Tell(std::span<double> news) const {
  if (!summed_) return;
  std::ranges::fill(news, 0.0);
  news[2 * rank_] = data_s_;
  news[2 * rank_ + 1] = compute_s_;
}

// Of the sums of elements [part, part + parts) of every rank. Leaves busy_ in another order.
double RankTimes::Median(std::span<const double> news, std::size_t part, std::size_t parts) {
  for (std::size_t r = 0; r < busy_.size(); ++r) {
    busy_[r] = news[2 * r + part] + (parts == 2 ? news[2 * r + part + 1] : 0);
  }
  const auto middle = busy_.begin() + (std::ssize(busy_) - 1) / 2;
  std::nth_element(busy_.begin(), middle, busy_.end());
  return *middle;
}

std::optional<Straggler> RankTimes::Hear(std::span<const double> news) {
  if (!summed_) return std::nullopt;
  std::size_t slowest = 0;
  const auto busy = [&](std::size_t rank) { return news[2 * rank] + news[2 * rank + 1]; };
  for (std::size_t r = 1; r < busy_.size(); ++r) {
    if (busy(r) > busy(slowest)) slowest = r;
  }
  if (!(busy(slowest) > 0)) return std::nullopt;
  const double median = Median(news, 0, 2);
  const double more_data = news[2 * slowest] - Median(news, 0, 1);
  const double more_compute = news[2 * slowest + 1] - Median(news, 1, 1);
  Straggler found{.rank = static_cast<int>(slowest),
                  .phase = more_data > more_compute ? "data" : "compute",
                  .ratio = median > 0 ? busy(slowest) / median : 1,
                  .wait_s = busy(slowest) - busy(rank_)};
  const bool slow = found.ratio > kRatio;
  streak_ = !slow ? 0 : found.rank == slowest_ ? streak_ + 1 : 1;
  slowest_ = found.rank;
  found.streak = streak_;
  return found;
}

}  // namespace gaccd
