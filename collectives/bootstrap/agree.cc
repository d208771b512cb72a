#include "collectives/bootstrap/agree.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "collectives/liveness/deadline/missing.h"

namespace gaccd {
namespace {

constexpr std::size_t kMessageBytes = 1024;

// Sends the message of `reporting_rank` to all in a buffer of fixed length, truncated if longer.
Result<std::string> ShareMessage(Communicator& comm, int reporting_rank, const Status& mine) {
  std::array<std::uint8_t, kMessageBytes> bytes{};
  if (comm.rank() == reporting_rank) {
    const std::string& message = mine.message();
    std::copy_n(message.begin(), std::min(message.size(), kMessageBytes), bytes.begin());
  }
  GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span<std::uint8_t>(bytes)), reporting_rank));
  const auto end = std::find(bytes.begin(), bytes.end(), std::uint8_t{0});
  return std::string(bytes.begin(), end);
}

}  // namespace

Agreement AgreeOn(Communicator& comm, const Status& mine) {
  const std::int32_t code = mine.ok() ? 0 : static_cast<std::int32_t>(mine.kind());
  std::vector<std::int32_t> codes(static_cast<std::size_t>(comm.size()));
  const std::vector<std::int64_t> counts(codes.size(), 1);
  Status gathered = comm.AllGather(View(std::span<const std::int32_t>(&code, 1)), counts,
                                   View(std::span<std::int32_t>(codes)));
  if (!gathered.ok()) return {mine.ok() ? gathered : mine, comm.rank()};
  const auto failed = std::find_if(codes.begin(), codes.end(), [](auto c) { return c != 0; });
  if (failed == codes.end()) return {};
  const auto reporting_rank = static_cast<int>(failed - codes.begin());
  auto message = ShareMessage(comm, reporting_rank, mine);
  if (!message.ok()) return {message.status(), comm.rank()};
  Status status(static_cast<ErrorKind>(*failed), *std::move(message));
  if (comm.size() == 1) return {std::move(status), reporting_rank};
  return {std::move(status).WithContext(RankOnHost(reporting_rank, comm.topology().hosts)),
          reporting_rank};
}

}  // namespace gaccd
