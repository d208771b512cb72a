#include "collectives/liveness/deadline/board.h"

namespace gaccd {

std::int64_t BoardMillis() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<MissingRank> FindMissing(std::span<const BoardLine> board, const BoardQuery& query) {
  std::vector<MissingRank> ended;
  std::vector<MissingRank> absent;
  std::vector<MissingRank> gave_up;
  for (int line : query.ended) {
    ended.push_back({query.ranks[static_cast<std::size_t>(line)], Absence::kEnded});
  }
  const std::int64_t now = BoardMillis();
  for (std::size_t i = 0; i < board.size(); ++i) {
    if (static_cast<int>(i) == query.line) continue;
    const Entry entry = Unpack(board[i].entry.load(std::memory_order_acquire));
    const std::int64_t quiet = now - board[i].alive_ms.load(std::memory_order_relaxed);
    const bool left = board[i].given_up.load() != static_cast<std::uint64_t>(GivenUp::kNo);
    const int rank = query.ranks[i];
    if (left) {
      gave_up.push_back({rank, Absence::kGaveUp});
    } else if (entry.sequence < query.mine.sequence) {
      absent.push_back({rank, Absence::kBehind});
    } else if (entry == query.mine && quiet > query.stalled_after.count()) {
      absent.push_back({rank, Absence::kStalled});
    }
  }
  // A death explains the wait: ranks that have merely not arrived are not the cause.
  if (!ended.empty()) return ended;
  if (query.late && !absent.empty()) return absent;
  return gave_up;
}

}  // namespace gaccd
