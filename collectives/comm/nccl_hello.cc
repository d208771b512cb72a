#include "collectives/comm/nccl_hello.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

static_assert(std::is_trivially_copyable_v<NcclHello>);

Status FirstError(std::span<const NcclHello> hellos, const Topology& topology) {
  const auto failed = [](const NcclHello& hello) { return hello.error != 0; };
  const auto first = std::ranges::find_if(hellos, failed);
  if (first == hellos.end()) return Status::Ok();
  const auto rank = static_cast<std::size_t>(first - hellos.begin());
  const auto more = std::ranges::count_if(hellos, failed) - 1;
  return {static_cast<ErrorKind>(first->error),
          StrCat(RankOnHost(static_cast<int>(rank), topology.hosts), ": ", first->text.data(),
                 more == 0 ? "" : StrCat(" (and ", more, " more ranks failed)"))};
}

}  // namespace

void SetError(const Status& status, NcclHello* hello) {
  if (status.ok()) return;
  hello->error = static_cast<std::int64_t>(status.kind());
  const std::size_t length = std::min(status.message().size(), hello->text.size() - 1);
  std::memcpy(hello->text.data(), status.message().data(), length);
}

Result<std::vector<NcclHello>> ExchangeHellos(Communicator& over, const NcclHello& mine) {
  const auto ranks = static_cast<std::size_t>(over.size());
  std::vector<NcclHello> hellos(ranks);
  const std::vector<std::int64_t> counts(ranks, sizeof(NcclHello));
  const ConstBuffer in{&mine, sizeof(NcclHello), DType::kU8, MemoryKind::kHost};
  const MutableBuffer out{hellos.data(), ranks * sizeof(NcclHello), DType::kU8, MemoryKind::kHost};
  GACCD_RETURN_IF_ERROR(over.AllGather(in, counts, out));
  GACCD_RETURN_IF_ERROR(FirstError(hellos, over.topology()));
  return hellos;
}

Status CheckSameHellos(std::span<const NcclHello> hellos, const Topology& topology) {
  const NcclHello& first = hellos.front();
  for (std::size_t r = 1; r < hellos.size(); ++r) {
    const auto differ = [&](std::string_view what, std::int64_t zero, std::int64_t other) {
      return Status(
          ErrorKind::kConfig,
          StrCat(what, " must be the same on all ranks: ", RankOnHost(0, topology.hosts), " has ",
                 zero, ", ", RankOnHost(static_cast<int>(r), topology.hosts), " has ", other));
    };
    const NcclHello& other = hellos[r];
    if (other.version != first.version) {
      return differ("the version of NCCL", first.version, other.version);
    }
    if (other.bound_ms != first.bound_ms) {
      return differ("the time limit in ms", first.bound_ms, other.bound_ms);
    }
    if (other.message_elements != first.message_elements) {
      return differ("the largest message", first.message_elements, other.message_elements);
    }
    if (other.windows != first.windows) {
      return differ("NCCL_WIN_ENABLE", first.windows, other.windows);
    }
  }
  return Status::Ok();
}

PeerProcesses WatchPeers(std::span<const NcclHello> hellos, const Topology& topology, int rank) {
  PeerProcesses peers;
  const int own_node = topology.node_of[static_cast<std::size_t>(rank)];
  const std::int64_t own_pid = ThisProcess().pid;
  for (std::size_t r = 0; r < hellos.size(); ++r) {
    // Ranks that are threads of this process end with it.
    if (topology.node_of[r] != own_node || hellos[r].pid == own_pid) continue;
    peers.Watch(static_cast<int>(r), {hellos[r].pid, hellos[r].pid_namespace});
  }
  return peers;
}

void WatchBoards(std::span<const NcclHello> hellos, const Topology& topology, int rank,
                 NcclBoard* board) {
  const int own_node = topology.node_of[static_cast<std::size_t>(rank)];
  for (std::size_t r = 0; r < hellos.size(); ++r) {
    if (topology.node_of[r] != own_node || static_cast<int>(r) == rank) continue;
    const NcclHello& hello = hellos[r];
    board->Watch(static_cast<int>(r), {hello.pid, hello.pid_namespace},
                 static_cast<int>(hello.board_fd));
  }
}

}  // namespace gaccd
