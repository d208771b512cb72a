#include "daemon/engine/sample_ledger.h"

#include <string>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// "rank 0: 13, rank 1: 12, ...": all ranks, so that the wrong one is visible.
Result<std::string> CountsByRank(Communicator& comm, std::int64_t counted) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::int64_t> counts, GatherAll(comm, counted));
  std::string text;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    text += StrCat(rank == 0 ? "" : ", ", "rank ", rank, ": ", counts[rank]);
  }
  return text;
}

}  // namespace

Status SampleLedger::Audit(Communicator& comm, std::int64_t sum, std::int64_t planned) {
  const std::int64_t mine = std::exchange(counted_, 0);
  if (sum == planned) return Status::Ok();
  // All ranks have the same sum, so all of them reach this second collective.
  GACCD_ASSIGN_OR_RETURN(const std::string by_rank, CountsByRank(comm, mine));
  return {ErrorKind::kInternal,
          StrCat("sample audit: the plan has ", planned,
                 " samples in this update, the ranks counted ", sum, " (", by_rank, ")")};
}

Result<double> InverseCount(std::int64_t count) {
  if (count < 1) {
    return Status(ErrorKind::kInternal,
                  StrCat("the mean of an update needs at least 1 sample, found ", count));
  }
  return 1.0 / static_cast<double>(count);
}

}  // namespace gaccd
