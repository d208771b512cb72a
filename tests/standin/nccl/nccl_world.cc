#include "tests/standin/nccl/nccl_world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "collectives/base/strings.h"
#include "tests/standin/standin.h"

namespace gaccd::standin {
namespace {

// What the ranks do when all are there. REQUIRES the lock.
void RunMeeting(Group& group, Meeting& meeting) {
  const Launch& first = *meeting.launches.front();
  for (const Launch* launch : meeting.launches) {
    const bool same = launch->size() == first.size() &&
                      std::equal(first.begin(), first.end(), launch->begin(),
                                 [](const auto& a, const auto& b) { return a.Matches(b); });
    if (same) continue;
    // Real ranks would wait for each other for ever, or read beyond the data.
    meeting.broken = true;
    for (ncclComm_t member : group.members) {
      if (member != nullptr && member->error == ncclSuccess) member->error = ncclInvalidUsage;
    }
    return;
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    std::vector<const NcclCall*> calls;
    for (const Launch* launch : meeting.launches) calls.push_back(&(*launch)[i]);
    RunCall(calls);
  }
  meeting.done = true;
}

// Whether a test wants this launch to break its communicator.
bool Breaks(ncclComm& comm) {
  auto& breaks = Library().breaks;
  for (auto wanted = breaks.begin(); wanted != breaks.end(); ++wanted) {
    if (wanted->rank != comm.rank || --wanted->nth > 0) continue;
    comm.error = wanted->result;
    breaks.erase(wanted);
    return true;
  }
  return false;
}

bool InSymmetricWindow(const ncclComm& comm, const void* data, std::size_t bytes) {
  return std::ranges::any_of(comm.windows, [&](ncclWindow_t window) {
    const auto* const begin = static_cast<const std::byte*>(window->data);
    const auto* const at = static_cast<const std::byte*>(data);
    return window->symmetric && at >= begin && at + bytes <= begin + window->bytes;
  });
}

// Whether NCCL has a symmetric kernel for some of it: of what gaccd asks for, sums of f32.
bool IsSymmetric(const ncclComm& comm, const Launch& launch) {
  return std::ranges::any_of(launch, [&](const NcclCall& call) {
    const std::size_t bytes = call.count * SizeOfNccl(call.type);
    return call.move == Move::kAllReduce && call.type == ncclFloat32 &&
           InSymmetricWindow(comm, call.in, bytes) && InSymmetricWindow(comm, call.out, bytes);
  });
}

// What a rank has enqueued on one communicator runs one after the other, on whatever streams.
void WaitForTurn(const ncclComm& comm, std::uint64_t turn, std::unique_lock<std::mutex>& lock) {
  Library().changed.wait(lock, [&] { return comm.finished + 1 >= turn || comm.aborted; });
}

// The next message of this pair, if both of its ranks have come. REQUIRES the lock.
void Match(Posted& posted, std::list<Posted*>& others) {
  Posted& other = *others.front();
  const NcclCall& send = posted.call->move == Move::kSend ? *posted.call : *other.call;
  const NcclCall& receive = posted.call->move == Move::kSend ? *other.call : *posted.call;
  if (send.count != receive.count || send.type != receive.type) {
    // Real ranks would wait for each other for ever, or read beyond the data.
    posted.comm->error = other.comm->error = ncclInvalidUsage;
    return;
  }
  std::memcpy(receive.out, send.in, send.count * SizeOfNccl(send.type));
  posted.done = other.done = true;
  others.pop_front();
}

// The work on the stream of one rank: its messages, in no order among themselves, as those of a
// group. A sender waits for its receiver, as for large messages the real one does.
void ExchangeMessages(const std::shared_ptr<ncclComm>& comm, const Launch& launch,
                      std::uint64_t turn) {
  NcclLibrary& library = Library();
  std::unique_lock lock(library.mutex);
  WaitForTurn(*comm, turn, lock);
  std::vector<Posted> messages(launch.size());
  const bool takes_part = !comm->aborted && !Breaks(*comm);
  for (std::size_t i = 0; takes_part && i < launch.size(); ++i) {
    messages[i] = {comm.get(), &launch[i]};
    const bool sends = launch[i].move == Move::kSend;
    const int peer = launch[i].root;
    auto& waiting =
        comm->group->posted[sends ? std::pair(comm->rank, peer) : std::pair(peer, comm->rank)];
    if (!waiting.empty() && waiting.front()->call->move != launch[i].move) {
      Match(messages[i], waiting);
    } else {
      waiting.push_back(&messages[i]);
    }
  }
  library.changed.notify_all();
  library.changed.wait(lock, [&] {
    return comm->aborted || (takes_part && std::ranges::all_of(messages, &Posted::done));
  });
  for (auto& [pair, waiting] : comm->group->posted) {
    waiting.remove_if([&](const Posted* posted) { return posted->comm == comm.get(); });
  }
  ++comm->finished;
  library.changed.notify_all();
}

// The work on the stream of one rank.
void TakePart(const std::shared_ptr<ncclComm>& comm, const Launch& launch, std::uint64_t turn,
              std::uint64_t number, bool symmetric) {
  NcclLibrary& library = Library();
  std::unique_lock lock(library.mutex);
  WaitForTurn(*comm, turn, lock);
  Group& group = *comm->group;
  Meeting& meeting = group.meetings[number];
  if (comm->aborted || Breaks(*comm)) {
    meeting.broken = true;
  } else {
    meeting.launches.resize(static_cast<std::size_t>(group.size));
    meeting.launches[static_cast<std::size_t>(comm->rank)] = &launch;
    if (++meeting.arrived == group.size && !meeting.broken) RunMeeting(group, meeting);
  }
  library.changed.notify_all();
  library.changed.wait(
      lock, [&] { return meeting.done || (symmetric ? library.kernels_end : comm->aborted); });
  if (symmetric) --comm->symmetric;
  if (!meeting.done) meeting.broken = true;  // the others cannot have this rank's data any more
  ++comm->finished;
  if (++meeting.left == group.size) group.meetings.erase(number);
  library.changed.notify_all();
}

std::vector<Touches> CollectTouches(const Launch& launch, const ncclComm& comm) {
  std::vector<Touches> touches;
  for (const NcclCall& call : launch) {
    const std::size_t part = call.count * SizeOfNccl(call.type);
    if (call.is_message()) {
      touches.push_back({call.move == Move::kSend ? call.in : call.out, part});
      continue;
    }
    const std::size_t whole = part * static_cast<std::size_t>(comm.group->size);
    const bool sends = call.move != Move::kBroadcast || call.root == comm.rank;
    const bool receives = call.move != Move::kReduce || call.root == comm.rank;
    if (sends) touches.push_back({call.in, call.move == Move::kReduceScatter ? whole : part});
    if (receives) touches.push_back({call.out, call.move == Move::kAllGather ? whole : part});
  }
  return touches;
}

bool IsStarting(const ncclComm& comm) {
  return comm.group == nullptr || comm.group->joined < comm.group->size ||
         std::chrono::steady_clock::now() < comm.ready_at;
}

// Whether all messages of the pending launch have their connections: the first of a direction waits
// on the host for the other rank's.
bool IsConnected(ncclComm& comm) {
  bool all = true;
  for (const NcclCall& call : *comm.pending) {
    if (!call.is_message()) continue;
    const bool sends = call.move == Move::kSend;
    unsigned& state = comm.group->connections[sends ? std::pair(comm.rank, call.root)
                                                    : std::pair(call.root, comm.rank)];
    state |= sends ? 1U : 2U;
    all = all && state == 3;
  }
  return all;
}

ncclResult_t PutIntoStream(ncclComm& comm) {
  const auto launch = std::make_shared<const Launch>(*std::exchange(comm.pending, std::nullopt));
  const std::shared_ptr<ncclComm> self = Library().comms.at(&comm);
  const std::size_t bytes = Library().knobs.channel_bytes;
  if (comm.launched == 0 && bytes > 0 && cudaMalloc(&comm.channels, bytes) != cudaSuccess) {
    return comm.error = ncclUnhandledCudaError;
  }
  const std::uint64_t turn = ++comm.launched;
  if (launch->front().is_message()) {
    const cudaError_t error = Enqueue(
        comm.stream, "a message of NCCL",
        [self, launch, turn] { ExchangeMessages(self, *launch, turn); },
        CollectTouches(*launch, comm));
    if (error != cudaSuccess) comm.error = ncclUnhandledCudaError;
    return comm.error;
  }
  const std::uint64_t number = ++comm.met;
  const bool symmetric = IsSymmetric(comm, *launch);
  if (symmetric) ++comm.symmetric;
  const cudaError_t error = Enqueue(
      comm.stream, "a collective of NCCL",
      [self, launch, turn, number, symmetric] { TakePart(self, *launch, turn, number, symmetric); },
      CollectTouches(*launch, comm));
  if (error != cudaSuccess) comm.error = ncclUnhandledCudaError;
  return comm.error;
}

}  // namespace

void NcclFatal(const std::string& message) {
  std::fprintf(stderr, "stand-in NCCL: %s\n", message.c_str());
  std::fflush(stderr);
  std::abort();
}

NcclLibrary& Library() {
  static auto* const library = new NcclLibrary;  // streams may use it until the very end
  return *library;
}

std::optional<ncclResult_t> EnterNccl(const std::string& function, int rank) {
  NcclLibrary& library = Library();
  ++library.counts[function];
  for (auto wanted = library.wanted.begin(); wanted != library.wanted.end(); ++wanted) {
    if (wanted->function != function || (wanted->rank != -1 && wanted->rank != rank)) continue;
    const ncclResult_t result = wanted->result;
    library.wanted.erase(wanted);
    return result;
  }
  return std::nullopt;
}

ncclComm& GetComm(ncclComm_t handle, const char* function) {
  const auto found = Library().comms.find(handle);
  if (found == Library().comms.end()) {
    NcclFatal(StrCat(function, " with a communicator that does not exist (any more)"));
  }
  return *found->second;
}

ncclResult_t Progress(ncclComm& comm) {
  if (comm.error != ncclSuccess) return comm.error;
  if (IsStarting(comm)) return ncclInProgress;
  if (comm.pending.has_value()) {
    if (comm.questions > 0) {
      --comm.questions;
      return ncclInProgress;
    }
    if (!IsConnected(comm)) return ncclInProgress;
    return PutIntoStream(comm);
  }
  if (comm.host_calls > comm.group->host_meetings_done) return ncclInProgress;
  if (comm.finalized && comm.finished < comm.launched) return ncclInProgress;
  return ncclSuccess;
}

void RequireIdle(ncclComm& comm, const char* function) {
  const bool busy = comm.pending.has_value() || IsStarting(comm) ||
                    comm.host_calls > comm.group->host_meetings_done;
  if (busy) NcclFatal(StrCat(function, " while another call is in progress"));
  if (comm.finalized) NcclFatal(StrCat(function, " after ncclCommFinalize"));
}

ncclComm_t AddComm() {
  auto comm = std::make_shared<ncclComm>();
  ncclComm_t const handle = comm.get();
  Library().comms.emplace(handle, std::move(comm));
  return handle;
}

void JoinHostMeeting(ncclComm& comm) {
  Group& group = *comm.group;
  const std::uint64_t number = ++comm.host_calls;
  if (++group.host_meetings[number] < group.size) return;
  group.host_meetings_done = number;
  group.host_meetings.erase(number);
}

void ResetNccl(const NcclKnobs& knobs) {
  NcclLibrary& library = Library();
  const std::lock_guard lock(library.mutex);
  if (!library.comms.empty()) NcclFatal(StrCat(library.comms.size(), " communicators are left"));
  if (!library.memory.empty()) NcclFatal(StrCat(library.memory.size(), " allocations are left"));
  library.knobs = knobs;
  library.groups.clear();
  library.ids.clear();
  library.counts.clear();
  library.wanted.clear();
  library.breaks.clear();
  library.kernels_end = false;
}

void EndKernelsOfNccl() {
  const std::lock_guard lock(Library().mutex);
  Library().kernels_end = true;
  Library().changed.notify_all();
}

void FailNccl(const std::string& function, int rank, ncclResult_t result) {
  const std::lock_guard lock(Library().mutex);
  Library().wanted.push_back({function, rank, result});
}

void BreakNccl(int rank, int nth, ncclResult_t result) {
  const std::lock_guard lock(Library().mutex);
  Library().breaks.push_back({rank, nth, result});
}

std::map<std::string, int> CountNccl() {
  const std::lock_guard lock(Library().mutex);
  return Library().counts;
}

int LiveNcclComms() {
  const std::lock_guard lock(Library().mutex);
  return static_cast<int>(Library().comms.size());
}

}  // namespace gaccd::standin
