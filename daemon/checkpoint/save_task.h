// The work of the threads of a CheckpointWriter: it uses no communicator and does not wait for
// other ranks. Tasks use only a SaveState and a PendingSave, and share ownership of both with the
// writer, as a thread that hangs in a file system may be abandoned.
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
struct StagingBuffer {
  std::vector<std::byte> bytes;  // used by the training thread while free, by the helper while busy
  bool busy = false;
};

// State of a writer.
struct SaveState {
  // Constant while threads run.
  CheckpointOptions options;
  Modes modes;
  int rank = 0;
  int world = 1;
  std::int64_t epoch = 0;
  std::int64_t since = 0;            // first epoch of this training
  std::optional<WriterLease> lease;  // on rank 0

  // `mutex` protects the following members and the results that tasks write to a PendingSave.
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;  // in order
  std::array<StagingBuffer, 2> slots;
  std::string prune_problem;
};

// One generation on this rank, created by the training thread.
struct PendingSave {
  Generation generation;
  Manifest manifest;  // without the shards, which rank 0 fills in
  PartialUpdate partial;
  std::size_t slot = 0;
  SaveEvent event;
  std::chrono::steady_clock::time_point start;
  bool committing = false;  // every rank has written; the same on all ranks
  bool late = false;        // it takes long, and a warning was logged
  bool stuck = false;       // training does not wait for it; the same on all ranks

  // Set by the helper after its last task: WriteTask(), then on rank 0 CommitTask().
  std::optional<Status> result;
  double took_s = 0;
  ShardRecord record;  // valid if WriteTask() succeeded
};

// Runs all queued tasks.
void RunTasks(SaveState& state);

// Writes a shard to the generation's folder, which is created if it does not exist.
Result<ShardRecord> WriteRankShard(const std::string& folder, const Generation& generation,
                                   const ShardIdentity& identity,
                                   std::span<const std::span<const std::byte>> parts, Modes modes);

// Writes the shard of this rank. Frees the slot.
void WriteTask(SaveState& state, PendingSave& save);

// On rank 0, after all shards are on disk: commits the generation, then prunes. Checks the lease
// last, between writing the manifest and renaming it.
void CommitTask(SaveState& state, PendingSave& save);

// Removes this rank's shard of a failed generation, whose manifest was never written or was removed
// by CommitTask(). Best effort: the next prune removes the rest. The folder is kept, as other ranks
// may be about to retry.
void Discard(const std::string& folder, const Generation& generation, std::int64_t rank,
             std::int64_t world);

// kIo, with both sizes, if the file system has not enough space for the generations kept by the
// policy, one being written and one not yet removed. OK if the free space is unknown.
[[nodiscard]] Status CheckSpace(const SaveState& state, std::span<const BufferSpec> buffers);

}  // namespace gaccd
