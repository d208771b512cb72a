// What the threads of a CheckpointWriter do: no communicator, no waiting for other ranks. They
// touch a SaveState and a PendingSave and nothing else, and share the ownership of both with the
// writer: one that hangs at a file system may be left behind.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/shard.h"
#include "daemon/checkpoint/writer.h"

namespace gaccd {

// Staging memory of one generation.
struct Slot {
  std::vector<std::byte> bytes;  // the training thread's while free, the helper's while busy
  bool busy = false;
};

// Of a writer.
struct SaveState {
  // Constant while threads run.
  CheckpointOptions options;
  Modes modes;
  int rank = 0;
  int world = 1;
  std::int64_t epoch = 0;
  std::int64_t since = 0;            // the first epoch of this training
  std::optional<WriterLease> lease;  // rank 0

  // `mutex` guards what follows and what the tasks fill in of a PendingSave.
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;  // in their order
  std::array<Slot, 2> slots;
  std::string prune_problem;
};

// One generation on this rank, made by the training thread.
struct PendingSave {
  Generation generation;
  Manifest manifest;  // without the shards; rank 0 fills them in
  WindowShare window;
  std::size_t slot = 0;
  SaveEvent event;
  std::chrono::steady_clock::time_point start;
  bool committing = false;  // every rank has written: known to all
  bool late = false;        // it takes long, and that was reported
  bool stuck = false;       // training does not wait for it: known to all

  // By the helper, of its last task: WriteTask(), then on rank 0 CommitTask().
  std::optional<Status> result;
  double took_s = 0;
  ShardRecord record;  // when WriteTask() succeeded
};

// The tasks there are.
void RunTasks(SaveState& state);

// A shard, in the generation's folder, which is made if it is not there.
Result<ShardRecord> WriteShardOf(const std::string& folder, const Generation& generation,
                                 const ShardIdentity& identity,
                                 std::span<const std::span<const std::byte>> parts, Modes modes);

// The same of this rank. Frees the slot.
void WriteTask(SaveState& state, PendingSave& save);

// Rank 0, after every shard is on the disk: makes the generation exist, then prunes. The lease is
// asked last, between the manifest's bytes and its name.
void CommitTask(SaveState& state, PendingSave& save);

// Takes back this rank's shard of a generation that failed: its manifest never was there, or
// CommitTask() has taken it back. Best effort: the next prune takes the rest. The folder stays, for
// other ranks may be about to try again.
void Discard(const std::string& folder, const Generation& generation, std::int64_t rank,
             std::int64_t world);

// kIo, with both figures, when the file system has no room for what the policy keeps, one
// generation that is being written and one that is not yet removed. OK where it does not tell.
[[nodiscard]] Status CheckSpace(const SaveState& state, std::span<const BufferSpec> buffers);

}  // namespace gaccd
