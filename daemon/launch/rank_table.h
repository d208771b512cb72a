// The reports of all ranks as a person reads them. Pure functions.
#pragma once

#include <span>
#include <string>

#include "daemon/launch/rank_report.h"

namespace gaccd {

// More ranks than this are put together where they differ in nothing but rank, host and UUID.
inline constexpr std::size_t kMaxRankLines = 16;

// First what all ranks have in common, one line each; then an aligned table of the rest, sorted by
// rank: one line a rank, or one line for the ranks that are alike ("0-232:8" on "n[1-30]").
// `reports` are by rank and not empty. Ends with a newline.
[[nodiscard]] std::string RankTableText(std::span<const RankReport> reports);

}  // namespace gaccd
