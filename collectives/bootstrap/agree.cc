#include "collectives/bootstrap/agree.h"

#include <algorithm>
#include <string>

#include "collectives/bootstrap/share_text.h"
#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

Agreement AgreeOn(Communicator& comm, const Status& mine) {
  const std::int32_t code = mine.ok() ? 0 : static_cast<std::int32_t>(mine.kind());
  const auto codes = GatherAll(comm, code);
  if (!codes.ok()) return {mine.ok() ? codes.status() : mine, comm.rank()};
  const auto failed = std::ranges::find_if(*codes, [](auto c) { return c != 0; });
  if (failed == codes->end()) return {};
  const auto reporting_rank = static_cast<int>(failed - codes->begin());
  auto message = ShareFromRank(comm, reporting_rank, mine.ok() ? std::string() : mine.message());
  if (!message.ok()) return {message.status(), comm.rank()};
  Status status(static_cast<ErrorKind>(*failed), *std::move(message));
  if (comm.size() == 1) return {std::move(status), reporting_rank};
  return {std::move(status).WithContext(RankOnHost(reporting_rank, comm.topology().hosts)),
          reporting_rank};
}

}  // namespace gaccd
