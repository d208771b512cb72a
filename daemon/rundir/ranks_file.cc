#include "daemon/rundir/ranks_file.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <span>

#include "collectives/base/cores.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

std::int64_t UsableCpus() {
  const auto cores = AllowedCores();
  return cores.ok() ? std::ssize(CoreNumbers(*cores)) : 0;
}

}  // namespace

Result<std::string> RankTable(Communicator& comm) {
  constexpr std::size_t kColumns = 3;
  const std::array<std::int64_t, kColumns> mine{comm.topology().local_rank, UsableCpus(),
                                                ::getpid()};
  GACCD_ASSIGN_OR_RETURN(const auto all, GatherAll(comm, std::span<const std::int64_t>(mine)));
  const Topology& topology = comm.topology();
  std::string text = "rank\thost\tnode\tlocal\tcpus\tpid\n";
  for (std::size_t rank = 0; rank * kColumns < all.size(); ++rank) {
    const std::int64_t* row = &all[rank * kColumns];
    text += StrCat(rank, "\t", topology.hosts[rank], "\t", topology.node_of[rank], "\t", row[0],
                   "\t", row[1], "\t", row[2], "\n");
  }
  return text;
}

}  // namespace gaccd
