// Inside of the NCCL stand-in: communicators, and how their ranks meet.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/standin/nccl/nccl_standin.h"

namespace gaccd::standin {

[[noreturn]] void NcclFatal(const std::string& message);

enum class Move { kAllReduce, kAllGather, kReduceScatter, kReduce, kBroadcast, kSend, kReceive };

// One call of a collective by one rank, or of a message.
struct NcclCall {
  Move move = Move::kAllReduce;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int root = 0;  // of a message the other rank

  [[nodiscard]] bool is_message() const { return move == Move::kSend || move == Move::kReceive; }
  // What all ranks must agree on.
  [[nodiscard]] bool Matches(const NcclCall& other) const {
    return move == other.move && count == other.count && type == other.type && root == other.root;
  }
};
using Launch = std::vector<NcclCall>;  // one group

[[nodiscard]] std::size_t SizeOfNccl(ncclDataType_t type);
// The i-th calls of all ranks, by rank, which match.
void RunCall(const std::vector<const NcclCall*>& calls);

// The n-th launch of all ranks of a group.
struct Meeting {
  std::vector<const Launch*> launches;  // by rank
  int arrived = 0;
  int left = 0;
  bool done = false;
  bool broken = false;  // it will never be done
};

// A message that one of its two ranks has come to. Lives on the stack of that rank's stream.
struct Posted {
  ncclComm_t comm = nullptr;
  const NcclCall* call = nullptr;
  bool done = false;
};

struct Group {
  int size = 0;
  // Of messages, by sender and receiver: which of the two (1, 2) are in a call of NCCL for their
  // first, and 3: connected. Until then that call does not end.
  std::map<std::pair<int, int>, unsigned> connections;
  // By sender and receiver, in order: those for which the other rank has not come.
  std::map<std::pair<int, int>, std::list<Posted*>> posted;
  std::vector<ncclComm_t> members;  // by rank
  int joined = 0;
  std::map<std::uint64_t, Meeting> meetings;
  std::map<std::uint64_t, int> host_meetings;  // ranks in the n-th call that all make on the host
  std::uint64_t host_meetings_done = 0;
};

}  // namespace gaccd::standin

// NCCL's header declares it, and leaves its inside to us.
struct ncclComm {
  std::shared_ptr<gaccd::standin::Group> group;
  int rank = 0;
  ncclResult_t error = ncclSuccess;
  bool aborted = false;
  bool finalized = false;
  std::optional<gaccd::standin::Launch> pending;  // not in the stream yet
  cudaStream_t stream = nullptr;                  // of pending
  int questions = 0;                              // until pending goes there
  std::uint64_t launched = 0;
  std::uint64_t finished = 0;
  std::uint64_t met = 0;  // launches of collectives, which all ranks of the group meet in
  std::uint64_t host_calls = 0;
  std::chrono::steady_clock::time_point ready_at;
  void* channels = nullptr;
  int symmetric = 0;  // launches of symmetric kernels that are not over
  std::set<ncclWindow_t> windows;
};

struct ncclWindow_vidmem {
  const void* data;
  std::size_t bytes;
  bool symmetric;
};

namespace gaccd::standin {

// All state; `mutex` guards everything.
struct NcclLibrary {
  std::mutex mutex;
  std::condition_variable changed;
  NcclKnobs knobs;
  std::map<ncclComm_t, std::shared_ptr<ncclComm>> comms;
  std::map<std::string, std::shared_ptr<Group>> groups;  // by their ids, until all have joined
  std::set<std::string> ids;
  std::set<const void*> memory;
  std::map<std::string, int> counts;
  struct Wanted {
    std::string function;
    int rank;
    ncclResult_t result;
  };
  std::list<Wanted> wanted;
  struct Break {
    int rank;
    int nth;
    ncclResult_t result;
  };
  std::list<Break> breaks;
  bool kernels_end = false;  // those that never look whether they are to stop, too
};
NcclLibrary& Library();

// REQUIRES Library().mutex for all below.
// Counts the call; the result that a test wants of it, if any.
std::optional<ncclResult_t> EnterNccl(const std::string& function, int rank);
// Stops the process when it is not alive.
ncclComm& GetComm(ncclComm_t handle, const char* function);
// ncclSuccess, ncclInProgress or the asynchronous error; moves things on.
ncclResult_t Progress(ncclComm& comm);
// Stops the process when a call is in progress.
void RequireIdle(ncclComm& comm, const char* function);
ncclComm_t AddComm();
// Takes part in the next host meeting of its group.
void JoinHostMeeting(ncclComm& comm);

}  // namespace gaccd::standin
