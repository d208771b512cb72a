// Text table of the reports of all ranks. Pure functions.
#pragma once

#include <span>
#include <string>

#include "daemon/launch/rank_report.h"

namespace gaccd {

// With more ranks than this, ranks that differ only in rank, host and UUID are joined.
inline constexpr std::size_t kMaxRankLines = 16;

// First the values common to all ranks, one per line; then an aligned table of the rest, sorted by
// rank: one line per rank, or per group of equal ranks ("0-232:8" on "n[1-30]"). reports: by rank,
// not empty. Ends with a newline.
[[nodiscard]] std::string RankTableText(std::span<const RankReport> reports);

}  // namespace gaccd
