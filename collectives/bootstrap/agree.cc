#include "collectives/bootstrap/agree.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "collectives/base/hash.h"
#include "collectives/base/strings.h"
#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

Agreement AgreeOn(Communicator& comm, const Status& mine) {
  const std::int32_t code = mine.ok() ? 0 : static_cast<std::int32_t>(mine.kind());
  const auto codes = GatherAll(comm, code);
  if (!codes.ok()) return {mine.ok() ? codes.status() : mine, comm.rank()};
  const auto failed = std::ranges::find_if(*codes, [](auto c) { return c != 0; });
  if (failed == codes->end()) return {};
  if (std::ranges::count(*codes, 0) == 0) {
    // An error of all ranks, for example one that they have already agreed on, names no rank.
    const auto hash = FnvStep(Fnv1a(mine.message()), static_cast<std::uint64_t>(code));
    const auto hashes = GatherAll(comm, static_cast<std::int64_t>(hash));
    if (!hashes.ok()) return {mine, comm.rank()};
    if (std::ranges::count(*hashes, hashes->front()) == std::ssize(*hashes)) return {mine, 0};
  }
  const auto reporting_rank = static_cast<int>(failed - codes->begin());
  auto message = ShareFromRank(comm, reporting_rank, mine.ok() ? std::string() : mine.message());
  if (!message.ok()) return {message.status(), comm.rank()};
  Status status(static_cast<ErrorKind>(*failed), *std::move(message));
  if (comm.size() == 1) return {std::move(status), reporting_rank};
  return {std::move(status).WithContext(RankOnHost(reporting_rank, comm.topology().hosts)),
          reporting_rank};
}

namespace {

// Collective: number of ranks that are still working.
Result<std::int64_t> CountWorkers(Communicator& comm, bool works) {
  std::int64_t workers = works ? 1 : 0;
  const std::span<std::int64_t> one(&workers, 1);
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(std::span<const std::int64_t>(one)), View(one)));
  return workers;
}

}  // namespace

Agreement WorkTogether(Communicator& comm,
                       const std::function<Status(const TickFunction& tick)>& work) {
  // the error of the other ranks, which is more informative than the one `work` returns for it
  Status lost;
  Status status = work([&] {
    if (lost.ok()) lost = CountWorkers(comm, true).status();
    return lost;
  });
  if (!lost.ok()) return {std::move(lost), comm.rank()};
  for (bool all_done = false; !all_done;) {
    const auto workers = CountWorkers(comm, false);
    if (!workers.ok()) return {status.ok() ? workers.status() : std::move(status), comm.rank()};
    all_done = *workers == 0;
  }
  return AgreeOn(comm, status);
}

namespace {

// More ranks than this are only counted.
constexpr int kMaxNames = 8;

std::string Differences(std::string_view what, const std::vector<std::string>& digests,
                        const std::string& usual, const Topology& topology) {
  const auto first = std::ranges::find(digests, usual) - digests.begin();
  std::string text =
      StrCat(what, " must be the same on all ranks: ", std::ranges::count(digests, usual), " of ",
             digests.size(), " ranks (rank ", first, " on ",
             topology.hosts[static_cast<std::size_t>(first)], ") have '", usual, "'");
  int named = 0;
  int others = 0;
  for (std::size_t r = 0; r < digests.size(); ++r) {
    if (digests[r] == usual) continue;
    if (named == kMaxNames) {
      ++others;
      continue;
    }
    text += StrCat(", rank ", r, " on ", topology.hosts[r], " has '", digests[r], "'");
    ++named;
  }
  if (others > 0) text += StrCat(", and ", others, " more differ");
  return text;
}

}  // namespace

Status CheckSameOnAllRanks(Communicator& comm, std::string_view what, std::string_view digest) {
  if (digest.size() > kDigestBytes) {
    return {ErrorKind::kInternal, StrCat("digest of ", what, ": expected at most ", kDigestBytes,
                                         " bytes, found ", digest.size())};
  }
  // Length and text in one fixed-size record.
  constexpr std::size_t kRecord = kDigestBytes + 1;
  std::array<std::uint8_t, kRecord> own{};
  own[0] = static_cast<std::uint8_t>(digest.size());
  std::ranges::copy(digest, own.begin() + 1);
  GACCD_ASSIGN_OR_RETURN(const auto all, GatherAll(comm, std::span<const std::uint8_t>(own)));
  std::vector<std::string> digests;
  for (auto record = all.begin(); record != all.end(); record += kRecord) {
    digests.emplace_back(record + 1, record + 1 + *record);
  }
  std::map<std::string, std::int64_t> counts;
  for (const std::string& one : digests) ++counts[one];
  const std::string* usual = &digests[0];
  for (const std::string& candidate : digests) {
    if (counts[candidate] > counts[*usual]) usual = &candidate;
  }
  if (counts.size() == 1) return Status::Ok();
  return {ErrorKind::kConfig, Differences(what, digests, *usual, comm.topology())};
}

Result<std::string> ShareFromRank(Communicator& comm, int root, const Result<std::string>& mine) {
  constexpr std::int64_t kSuccess = 0;  // not used by any ErrorKind
  std::string text = mine.ok() ? *mine : mine.status().message();
  std::array<std::int64_t, 2> head{
      mine.ok() ? kSuccess : static_cast<std::int64_t>(mine.status().kind()), std::ssize(text)};
  GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span<std::int64_t>(head)), root));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(head[1]));
  if (comm.rank() == root) bytes.assign(text.begin(), text.end());
  GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span<std::uint8_t>(bytes)), root));
  text.assign(bytes.begin(), bytes.end());
  if (head[0] == kSuccess) return text;
  return Status(static_cast<ErrorKind>(head[0]), text);
}

Result<std::vector<std::string>> GatherText(Communicator& comm, std::string_view mine) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::int64_t> sizes,
                         GatherAll(comm, std::int64_t{std::ssize(mine)}));
  const std::vector<std::uint8_t> own(mine.begin(), mine.end());
  std::vector<std::uint8_t> all(
      static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})));
  GACCD_RETURN_IF_ERROR(comm.AllGather(View(std::span<const std::uint8_t>(own)), sizes,
                                       View(std::span<std::uint8_t>(all))));
  std::vector<std::string> texts;
  auto at = all.begin();
  for (const std::int64_t length : sizes) {
    texts.emplace_back(at, at + length);
    at += length;
  }
  return texts;
}

}  // namespace gaccd
