// RankTimes: which rank the others wait for. Every rank tells on an update's news how long it was
// busy in the newest update that it knows the times of, before it waited for the others; so all
// ranks know all times, one update late (two on GPUs).
//
//   element 2r      data_s of rank r     waiting for its micro-batches
//   element 2r + 1  fwd_bwd_s of rank r  forward, backward
//
// Busy is the sum of both. A rank alone has nobody to wait for, and more than kMostRanks would make
// the news larger than many a model: both tell nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace gaccd {

struct Straggler {
  int rank = 0;            // with the largest busy time (of equal ones the lowest)
  std::string_view phase;  // "data" or "compute": what exceeds its median over the ranks by more
  double ratio = 1;        // largest / median busy time (of an even number the lower middle one)
  double wait_s = 0;       // of this rank: largest - own
  // This rank has been more than kRatio slower than the median in so many updates in a row.
  std::int64_t streak = 0;
};

class RankTimes {
 public:
  static constexpr int kMostRanks = 4096;
  static constexpr double kRatio = 1.5;
  static constexpr std::int64_t kUpdates = 20;  // a streak of so many is told to people

  RankTimes(int rank, int world);

  [[nodiscard]] std::size_t elements() const { return summed_ ? 2 * busy_.size() : 0; }

  // This rank's times of an update that ended.
  void Took(double data_s, double compute_s);
  // Before an update: `news` has elements() elements.
  void Tell(std::span<double> news) const;
  // After it, the same summed over the ranks. Empty while no rank has told anything.
  std::optional<Straggler> Hear(std::span<const double> news);

 private:
  double Median(std::span<const double> news, std::size_t part, std::size_t parts);

  std::size_t rank_;
  bool summed_;
  double data_s_ = 0;
  double compute_s_ = 0;
  std::vector<double> busy_;  // scratch, by rank
  int slowest_ = -1;
  std::int64_t streak_ = 0;
};

}  // namespace gaccd
