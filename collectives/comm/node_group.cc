#include "collectives/comm/node_group.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace gaccd {
namespace {

// A place is one word: the number of a window and an offset in its segments.
constexpr int kOffsetBits = 44;
constexpr std::int64_t kOffsetMask = (std::int64_t{1} << kOffsetBits) - 1;

}  // namespace

Result<std::shared_ptr<NodeGroup>> NodeGroup::Make(MPI_Comm comm, std::vector<int> ranks,
                                                   std::size_t staging_bytes) {
  std::shared_ptr<NodeGroup> group(new NodeGroup(comm, std::move(ranks)));
  const MPI_Comm node = group->comm_;
  MPI_Comm_rank(node, &group->rank_);
  GACCD_ASSIGN_OR_RETURN(group->permanent_, SharedWindow::Allocate(node, 2 * staging_bytes));
  group->staging_bytes_ = group->permanent_.bytes() / 2;
  GACCD_ASSIGN_OR_RETURN(group->board_memory_,
                         SharedWindow::Allocate(node, sizeof(NodeCounters) + sizeof(BoardLine)));
  GACCD_RETURN_IF_ERROR(group->InitBoard());
  return group;
}

Status NodeGroup::InitBoard() {
  // The counters and all lines are in the segment of rank 0 and the memory after it.
  std::byte* memory = board_memory_.segment(0);
  counters_ = reinterpret_cast<NodeCounters*>(memory);
  board_ = {reinterpret_cast<BoardLine*>(memory + sizeof(NodeCounters)), ranks_.size()};
  if (rank_ == 0) new (counters_) NodeCounters{};
  new (&own_line()) BoardLine{};
  const ProcessName self = ThisProcess();
  own_line().pid.store(self.pid);
  own_line().pid_namespace.store(self.pid_namespace);
  own_line().alive_ms.store(BoardMillis());
  GACCD_RETURN_IF_ERROR(MpiStatus(MPI_Barrier(comm_), "MPI_Barrier of the ranks of a node"));
  for (int i = 0; i < size(); ++i) {
    const BoardLine& line = board_[static_cast<std::size_t>(i)];
    // If a peer cannot be watched, the deadline detects its death.
    if (i != rank_) peers_.Watch(i, {line.pid.load(), line.pid_namespace.load()});
  }
  return Status::Ok();
}

Result<int> NodeGroup::AddWindow(std::size_t bytes) {
  GACCD_ASSIGN_OR_RETURN(SharedWindow memory, SharedWindow::Allocate(comm_, bytes));
  windows_.push_back({std::move(memory)});
  return static_cast<int>(windows_.size()) - 1;
}

void NodeGroup::ZeroSegment(int window) {
  const SharedWindow& memory = windows_[static_cast<std::size_t>(window)].memory;
  std::memset(memory.segment(rank_), 0, memory.bytes());
}

void NodeGroup::ReleaseSegment(int window) {
  Window& released = windows_[static_cast<std::size_t>(window)];
  released.released = true;
  // On failure the pages are kept until the process ends.
  madvise(released.memory.segment(rank_), released.memory.bytes(), MADV_REMOVE);
}

std::int64_t NodeGroup::FindPlace(ConstBuffer buffer) const {
  const auto* begin = static_cast<const std::byte*>(buffer.data);
  const std::less_equal<> at_most;
  for (std::size_t w = 0; w < windows_.size(); ++w) {
    const std::byte* segment = windows_[w].memory.segment(rank_);
    const bool inside = !windows_[w].released && at_most(segment, begin) &&
                        at_most(begin + buffer.bytes(), segment + windows_[w].memory.bytes());
    if (inside) return (static_cast<std::int64_t>(w) << kOffsetBits) | (begin - segment);
  }
  return kPrivate;
}

void* NodeGroup::AtPlace(std::int64_t place, int local_rank) const {
  return window_segment(static_cast<int>(place >> kOffsetBits), local_rank) + (place & kOffsetMask);
}

}  // namespace gaccd
