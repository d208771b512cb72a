#include "collectives/liveness/deadline/missing.h"

#include <algorithm>
#include <cmath>

#include "collectives/base/strings.h"

namespace gaccd {

namespace {

// More names would make the message unreadable; the rest is counted.
constexpr std::size_t kMaxNames = 16;

double Seconds(std::chrono::nanoseconds time) {
  return std::round(std::chrono::duration<double>(time).count() * 10.0) / 10.0;
}

std::string Describe(const MissingRank& missing, Entry mine, std::span<const std::string> hosts) {
  const std::string who = RankOnHost(missing.rank, hosts);
  switch (missing.absence) {
    case Absence::kBehind:
      return StrCat(who, " did not enter ", Numbered(mine));
    case Absence::kStalled:
      return StrCat(who, " entered ", Numbered(mine), " and stopped in it");
    case Absence::kEnded:
      return StrCat(who, kHasEnded);
    case Absence::kSilent:
      return StrCat(who, " did not enter ", Numbered(mine), " (no rank of its node answers)");
    case Absence::kGaveUp:
      return StrCat(who, " gave up in ", Numbered(mine));
  }
  return who;
}

}  // namespace

std::string Numbered(Entry entry) { return StrCat(Name(entry.operation), " #", entry.sequence); }

std::string RankOnHost(int rank, std::span<const std::string> hosts) {
  const auto index = static_cast<std::size_t>(rank);
  return StrCat("rank ", rank, " on ", index < hosts.size() ? hosts[index] : "?");
}

std::string_view Name(Operation operation) {
  switch (operation) {
    case Operation::kNone:
      return "nothing";
    case Operation::kAllReduce:
      return "all-reduce";
    case Operation::kAllGather:
      return "all-gather";
    case Operation::kReduceScatter:
      return "reduce-scatter";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kAllocate:
      return "allocate";
    case Operation::kSplit:
      return "split";
    case Operation::kMessage:
      return "message";
  }
  return "?";
}

std::vector<MissingRank> Offenders(std::vector<MissingRank> missing) {
  const auto gave_up = [](const MissingRank& m) { return m.absence == Absence::kGaveUp; };
  if (!std::ranges::all_of(missing, gave_up)) std::erase_if(missing, gave_up);
  std::ranges::stable_sort(missing, {}, &MissingRank::rank);
  const auto again = std::ranges::unique(missing, {}, &MissingRank::rank);
  missing.erase(again.begin(), again.end());
  return missing;
}

Status MissingError(Entry mine, std::chrono::nanoseconds waited, std::chrono::milliseconds bound,
                    std::span<const MissingRank> missing, std::span<const std::string> hosts) {
  std::string text = StrCat(Numbered(mine), " ended after ", Seconds(waited), " s (bound ",
                            Seconds(bound), " s): ");
  if (missing.empty()) text += "every rank entered it, but it did not complete";
  for (std::size_t i = 0; i < missing.size() && i < kMaxNames; ++i) {
    text += StrCat(i == 0 ? "" : "; ", Describe(missing[i], mine, hosts));
  }
  if (missing.size() > kMaxNames) text += StrCat("; and ", missing.size() - kMaxNames, " more");
  return {ErrorKind::kUnavailable, std::move(text)};
}

Status MismatchError(Entry mine, int my_rank, Entry other, int other_rank,
                     std::span<const std::string> hosts) {
  return {ErrorKind::kInternal,
          StrCat(RankOnHost(other_rank, hosts), " entered ", Numbered(other), " where ",
                 RankOnHost(my_rank, hosts), " entered ", Numbered(mine))};
}

Status LateMessageError(int from, std::chrono::milliseconds bound,
                        std::span<const std::string> hosts) {
  return {ErrorKind::kUnavailable, StrCat("a message of ", RankOnHost(from, hosts),
                                          " did not arrive within ", bound.count(), " ms")};
}

Status MessageSizeError(int from, std::size_t expected, std::size_t found,
                        std::span<const std::string> hosts) {
  return {ErrorKind::kInternal, StrCat("a message of ", RankOnHost(from, hosts), ": expected ",
                                       expected, " bytes, found ", found)};
}

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
