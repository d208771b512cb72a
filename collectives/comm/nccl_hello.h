// Data exchanged by the ranks of a NCCL communicator over the host before NCCL is called: the
// unique ids and a status, so that a rank that cannot continue fails all ranks at once instead of
// leaving them waiting inside NCCL.
#pragma once

#include <nccl.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "collectives/comm/nccl_board.h"
#include "collectives/liveness/deadline/peer_processes.h"

namespace gaccd {

// Sent as bytes: all ranks run the same binary.
struct NcclHello {
  std::int64_t error = 0;  // 0: ready; otherwise an ErrorKind
  std::int64_t version = 0;
  std::int64_t bound_ms = 0;
  std::int64_t message_elements = 0;
  std::int64_t windows = 0;
  std::int64_t pid = 0;
  std::uint64_t pid_namespace = 0;
  std::int64_t board_fd = -1;  // NcclBoard::fd()
  ncclUniqueId id{};           // valid on roots
  std::array<char, 256> text{};
};

// Stores `status` in `hello` if it is an error.
void SetError(const Status& status, NcclHello* hello);

// Collective over `over`. The hellos by rank if all ranks are ready; otherwise, on every rank, the
// error of the lowest failed rank: "rank 2 on n1: ...", and the number of other failed ranks.
Result<std::vector<NcclHello>> ExchangeHellos(Communicator& over, const NcclHello& mine);

// kConfig if the ranks have different versions of NCCL or different options.
[[nodiscard]] Status CheckSameHellos(std::span<const NcclHello> hellos, const Topology& topology);

// Watches the processes of the other ranks on this rank's node.
[[nodiscard]] PeerProcesses WatchPeers(std::span<const NcclHello> hellos, const Topology& topology,
                                       int rank);
// Watches their boards; `board` is this rank's.
void WatchBoards(std::span<const NcclHello> hellos, const Topology& topology, int rank,
                 NcclBoard* board);

}  // namespace gaccd
