#include "daemon/rundir/agreement.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/cores.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::int64_t kSuccess = 0;  // not used by any ErrorKind

std::int64_t UsableCpus() {
  const auto cores = AllowedCores();
  return cores.ok() ? std::ssize(CoreNumbers(*cores)) : 0;
}

}  // namespace

Result<std::string> ShareFromRankZero(Communicator& comm, const Result<std::string>& mine) {
  std::string text = mine.ok() ? *mine : mine.status().message();
  std::array<std::int64_t, 2> head{
      mine.ok() ? kSuccess : static_cast<std::int64_t>(mine.status().kind()), std::ssize(text)};
  GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span<std::int64_t>(head)), 0));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(head[1]));
  if (comm.rank() == 0) bytes.assign(text.begin(), text.end());
  GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span<std::uint8_t>(bytes)), 0));
  text.assign(bytes.begin(), bytes.end());
  if (head[0] == kSuccess) return text;
  return Status(static_cast<ErrorKind>(head[0]), text);
}

Result<std::string> RankTable(Communicator& comm) {
  constexpr std::size_t kColumns = 3;
  const std::array<std::int64_t, kColumns> mine{comm.topology().local_rank, UsableCpus(),
                                                ::getpid()};
  const std::size_t world = static_cast<std::size_t>(comm.size());
  const std::vector<std::int64_t> counts(world, kColumns);
  std::vector<std::int64_t> all(world * kColumns);
  GACCD_RETURN_IF_ERROR(comm.AllGather(View(std::span<const std::int64_t>(mine)), counts,
                                       View(std::span<std::int64_t>(all))));
  const Topology& topology = comm.topology();
  std::string text = "rank\thost\tnode\tlocal\tcpus\tpid\n";
  for (std::size_t rank = 0; rank < world; ++rank) {
    const std::int64_t* row = &all[rank * kColumns];
    text += StrCat(rank, "\t", topology.hosts[rank], "\t", topology.node_of[rank], "\t", row[0],
                   "\t", row[1], "\t", row[2], "\n");
  }
  return text;
}

}  // namespace gaccd
