// Loads for ranks of different speeds. Pure arithmetic, the same bits on every rank.
//
// A rank of speed s takes n / s (rounded to a double) for n samples, however they are cut. Of all
// splits of `samples` over the ranks, the one that is chosen has
//   1. the smallest time of its slowest rank, T = max over ranks of n / s;
//   2. of those, the fewest micro-steps k, where no rank takes more than k micro_batch samples;
//   3. of those, the smallest idle share, 1 - (mean over ranks of n / s) / T.
// T by bisection over doubles: a rank can take the largest n with n / s <= T. What the ranks could
// take in excess of `samples` is taken from the fastest ones, where it costs the least busy time,
// and spread evenly over ranks of one speed. So equal speeds give the loads of Plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

inline constexpr double kLeastSpeed = 1e-6;
inline constexpr double kMostSpeed = 1e6;
// Whole numbers up to here are doubles.
inline constexpr std::int64_t kMostSamplesBySpeed = std::int64_t{1} << 53;

struct SpeedSplit {
  std::vector<std::int64_t> loads;  // by rank; some may be 0
  std::int64_t micro_steps = 1;     // of every rank
};

// kConfig, with the rank and the value, for a speed that is not in [kLeastSpeed, kMostSpeed].
[[nodiscard]] Status CheckSpeeds(std::span<const double> speeds);

// speeds: by rank. REQUIRES: CheckSpeeds(speeds), at least one, 1 <= samples <=
// kMostSamplesBySpeed, micro_batch >= 1.
[[nodiscard]] SpeedSplit SplitBySpeed(std::span<const double> speeds, std::int64_t samples,
                                      std::int64_t micro_batch);

// "160x1,80x0.6": the speeds of consecutive ranks, each as the shortest text that reads back the
// same.
[[nodiscard]] std::string SpeedsText(std::span<const double> speeds);
// The way back. kConfig for another text, or one of more than `ranks` ranks.
[[nodiscard]] Result<std::vector<double>> ParseSpeeds(std::string_view text, std::int64_t ranks);
// A number as --speed= and ParseSpeeds() read it; kConfig, with the text, for all that is none.
[[nodiscard]] Result<double> ParseSpeed(std::string_view text);

}  // namespace gaccd
