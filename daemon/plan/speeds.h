// Loads for ranks of different speeds. Pure arithmetic, with the same bits on every rank.
//
// A rank of speed s takes time n / s (rounded to a double) for n samples, however they are divided.
// Among all splits of `samples` over the ranks, the chosen one has
//   1. the smallest time of its slowest rank, T = max over ranks of n / s;
//   2. of those, the fewest micro-steps k, where no rank takes more than k micro_batch samples;
//   3. of those, the smallest idle share, 1 - (mean over ranks of n / s) / T.
// T is found by bisection over doubles: a rank can take the largest n with n / s <= T. The capacity
// in excess of `samples` is taken from the fastest ranks, where it costs the least busy time, and
// spread evenly over ranks of equal speed. So equal speeds give the loads of Plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/plan/plan.h"

namespace gaccd {

inline constexpr double kMinSpeed = 1e-6;
inline constexpr double kMaxSpeed = 1e6;
// Integers up to here are exact as doubles.
inline constexpr std::int64_t kMaxSamplesBySpeed = std::int64_t{1} << 53;

struct SpeedSplit {
  std::vector<std::int64_t> loads;  // by rank; some may be 0
  std::int64_t micro_steps = 1;     // the same for every rank
};

// kConfig, with the rank and the value, for a speed that is not in [kMinSpeed, kMaxSpeed].
[[nodiscard]] Status CheckSpeeds(std::span<const double> speeds);

// speeds: by rank. REQUIRES: CheckSpeeds(speeds), at least one, 1 <= samples <=
// kMaxSamplesBySpeed, micro_batch >= 1.
[[nodiscard]] SpeedSplit SplitBySpeed(std::span<const double> speeds, std::int64_t samples,
                                      std::int64_t micro_batch);

// "160x1,80x0.6": the speeds of consecutive ranks, each as the shortest text that reads back the
// same.
[[nodiscard]] std::string SpeedsText(std::span<const double> speeds);
// Parses SpeedsText(). kConfig for any other text, or for more than `ranks` ranks.
[[nodiscard]] Result<std::vector<double>> ParseSpeeds(std::string_view text, std::int64_t ranks);
// Parses a number of --speed= and ParseSpeeds(); kConfig, with the text, if it is not one.
[[nodiscard]] Result<double> ParseSpeed(std::string_view text);

// Groups the ranks of a plan by their number of samples.
struct LoadGroup {
  std::int64_t samples = 0;
  std::int64_t ranks = 0;
  double min_speed = 1;  // minimum over these ranks
  double max_speed = 1;
};

// In descending order of load. One or two groups unless plan.uneven() or any_split().
[[nodiscard]] std::vector<LoadGroup> LoadGroups(const Plan& plan);

// Text of bounded length for events, in descending order of load. "160x14,80x9": 160 ranks take 14
// samples each. If there are more than kMaxLoadsInText loads, "40x9-12" are ranks with 9 to 12.
inline constexpr std::size_t kMaxLoadsInText = 16;
[[nodiscard]] std::string LoadsText(const Plan& plan);
// SpeedsText() of the ranks, "240x1" if they are equal; empty if it is longer than `limit`.
[[nodiscard]] std::string SpeedsText(const Plan& plan, std::size_t limit);

}  // namespace gaccd
