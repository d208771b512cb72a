// NCCL among the threads of one process, over the stand-in GPU: the entry points that gaccd uses.
//
// Collectives are work on the streams of the ranks, as the real ones are: a rank's stream waits in
// it until all ranks have come, and only ncclCommAbort lets it go earlier; but not out of a sum of
// f32 in symmetric windows: there ncclCommAbort waits too, until EndKernelsOfNccl(). In a message
// both ranks wait for each other. What a rank has enqueued on one communicator runs one after the
// other, also on several streams. Everything is
// non-blocking: a call stays ncclInProgress for some questions, and only then does its work go into
// the stream. Sums are made in the order of the ranks. What NCCL forbids stops the process with a
// message that begins with "stand-in NCCL:", for EXPECT_DEATH: calls while one is in progress, on
// something destroyed, a split with work in flight, memory freed under a window or a kernel. One
// per process, like the library. Thread-safe.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "collectives/comm/nccl_api.h"

namespace gaccd {

const NcclApi* StandInNccl();

namespace standin {

struct NcclKnobs {
  int version = NCCL_VERSION_CODE;
  bool windows = true;      // false: ncclCommWindowRegister gives none, as where the GPU cannot
  int no_window_rank = -1;  // this rank alone gets none
  int unaligned_alloc = 0;  // the next so many allocations are aligned to 256 bytes only
  int questions = 2;        // how often a call is in progress still before it is done
  std::chrono::milliseconds start{0};  // how long it takes to make a communicator
  // Memory of the GPU that a communicator allocates at its first collective and keeps.
  std::size_t channel_bytes = 0;
};

// As new. REQUIRES: no communicator and no memory of it is left.
void ResetNccl(const NcclKnobs& knobs = {});

// The next call of `function` by `rank` (-1: by any) returns `result` and does nothing else. Calls
// that know no rank, as ncclGetUniqueId, only heed -1.
void FailNccl(const std::string& function, int rank, ncclResult_t result);
// The nth launch from now (1 = the next) of the rank `rank` of any communicator never takes part;
// `result` becomes that communicator's asynchronous error.
void BreakNccl(int rank, int nth, ncclResult_t result);

// Kernels that do not notice that they are to stop end, from now on until ResetNccl(), as with the
// process.
void EndKernelsOfNccl();

// Calls since ResetNccl() by function.
[[nodiscard]] std::map<std::string, int> CountNccl();
[[nodiscard]] int LiveNcclComms();

}  // namespace standin
}  // namespace gaccd
