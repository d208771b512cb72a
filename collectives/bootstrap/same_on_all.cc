#include "collectives/bootstrap/same_on_all.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "collectives/base/strings.h"

namespace gaccd {
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
  const std::string* usual = &digests[0];
  for (const std::string& candidate : digests) {
    if (std::ranges::count(digests, candidate) > std::ranges::count(digests, *usual)) {
      usual = &candidate;
    }
  }
  if (std::ranges::count(digests, *usual) == std::ssize(digests)) return Status::Ok();
  return {ErrorKind::kConfig, Differences(what, digests, *usual, comm.topology())};
}

}  // namespace gaccd
