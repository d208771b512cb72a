#include "daemon/engine/sample_audit.h"

#include <string>
#include <vector>

#include "collectives/base/strings.h"

namespace gaccd {

Status SampleCountError(Communicator& comm, std::int64_t counted, std::int64_t sum,
                        std::int64_t planned) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::int64_t> counts, GatherAll(comm, counted));
  std::string by_rank;  // all ranks, so that the wrong one is visible
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    by_rank += StrCat(rank == 0 ? "" : ", ", "rank ", rank, ": ", counts[rank]);
  }
  return {ErrorKind::kInternal,
          StrCat("sample audit: the plan has ", planned,
                 " samples in this update, the ranks counted ", sum, " (", by_rank, ")")};
}

}  // namespace gaccd
