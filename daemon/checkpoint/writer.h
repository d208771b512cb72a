// CheckpointWriter: saves a run while it trains. One per rank; used by the training thread, which
// is the only one to use the communicator. Every rank calls the same functions at the same
// boundaries.
//
//   boundary u    Save(): copies this rank's parts into one of two staging buffers     training
//   meanwhile     shard: temporary name, write, fsync, rename, fsync, read again       helper
//   boundary v    Poll(): ranks exchange their digests in one small AllGather          training
//   meanwhile     rank 0: lease checked, manifest written the same way, old ones pruned helper
//   boundary w    Poll(): rank 0 reports the commit                                    training
//
// The helper thread never uses the communicator, so no second channel between the ranks is needed;
// Poll() costs one AllGather of 104 bytes per rank at boundaries where a save is in progress,
// otherwise nothing. Training waits only in MakeRoom() and Save(), if two generations are in
// progress, and in Finish(); while it waits, the ranks exchange twice per second, so that a slow
// disk does not look like a lost rank.
//
// A save that fails (kIo on any rank) is dropped on all ranks; the last good generation is kept,
// the listener is called, training continues, and the same cursor may be saved again. After
// `fail_limit` failures in a row the error is returned. Any other error, such as a lost lease, ends
// the run at once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "collectives/base/result.h"
#include "collectives/base/thread.h"
#include "collectives/base/time.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/rundir/folder_owner.h"

namespace gaccd {

// Source of the bytes of a buffer: copies any range of it on request. For device memory that is a
// copy to the host; only this rank's part is requested. May be collective: every save requests a
// range on every rank exactly once, possibly an empty one.
struct BufferSource {
  BufferSpec spec;
  std::function<Status(std::uint64_t offset, std::span<std::byte> out)> copy;
};

// Whether, and why, to stop waiting for a disk.
enum class GiveUp : std::int64_t { kNo, kDisk, kNoTime, kStopRequested };

struct CheckpointOptions {
  std::string folder;         // created if it does not exist
  bool group_access = false;  // folders 0750 and files 0640 instead of 0700 and 0600
  KeepPolicy keep;
  std::int64_t fail_limit = 3;        // >= 1
  OwnerPatience lease_patience = {};  // with another writer
  std::uint64_t block_bytes = std::uint64_t{1} << 20;

  // Called on the training thread of rank 0 by the first Poll() that finds a save still being
  // written `alarm_after` its start, once per save; also for a file system that may become full.
  // May be empty.
  std::function<void(const std::string& text)> warn;
  std::chrono::milliseconds alarm_after{10'000};
  // Training does not wait for a save that takes longer than this: MakeRoom() returns false.
  std::chrono::milliseconds patience{2'000};
  // How long Save() and Finish() wait for a disk that makes no progress; 0: no limit. Then they
  // return kTempFail on all ranks, with the folder.
  std::chrono::milliseconds end_patience{0};
  // Called on the training thread of every rank at each exchange while Save() or Finish() waits for
  // a disk. If any rank requests it, the wait ends on all: kStopRequested with kInterrupted,
  // kNoTime with kTempFail. May be empty.
  std::function<GiveUp()> give_up;
  // The longest wait for a disk between two exchanges: far below the bound of a communicator.
  std::chrono::milliseconds exchange_every{500};
  NowFunction now = std::chrono::steady_clock::now;  // also called by the helper
};

struct SaveEvent {
  Generation generation;
  Status status;                   // OK: committed
  std::int64_t failed_in_row = 0;  // including this one
  double copy_s = 0;               // time that training waited for the copy
  double wait_s = 0;               // time that training waited for a free staging buffer
  double write_s = 0;              // time of the helper for its shard, on the slowest rank
  double commit_s = 0;             // time for the manifest, on rank 0
  double total_s = 0;              // from Save() until the commit is known, at a boundary
  std::string prune_problem;       // on rank 0: what could not be removed, and why; otherwise empty

  // Duration of a save without waits for boundaries.
  [[nodiscard]] double save_s() const { return copy_s + write_s + commit_s; }
};
using SaveListener = std::function<void(const SaveEvent&)>;

// The lease to write in a folder. A run that resumes from checkpoints there acquires it before it
// searches them: from then on no earlier writer can commit anything that it does not see. Signs of
// life begin with Start(); until then the owner of the run folder keeps other runs out.
struct CheckpointLease {
  std::int64_t epoch = 0;
  std::int64_t job_since = 0;        // the first epoch of this job: lease.h
  TrainingStart training;            // the newest of the folder
  std::optional<WriterLease> lease;  // on rank 0

  // Marks that the folder belongs to another training from now on: WriterLease::BeginTraining().
  // Called on all ranks; rank 0 writes.
  Status BeginTraining(const std::string& from);
  // WriterLease::GoBackTo(), called in the same way.
  Status GoBackTo(const std::string& generation);
};

struct PendingSave;
struct SaveReport;
struct SaveState;

class CheckpointWriter {
 public:
  // Collective. NewestTraining() on rank 0, for a run that saves nothing and so claims nothing.
  static Result<TrainingStart> FindNewestTraining(Communicator& comm, const std::string& folder);

  // Collective. Rank 0 takes the lease of the folder; all ranks get its error (kConfig: in use by
  // ...).
  static Result<CheckpointLease> Claim(Communicator& comm, const CheckpointOptions& options,
                                       const OwnerName& me);

  // Collective. common: the common part of all manifests of a run: program, job_text, parameters,
  // plan (of this world), and the buffers of every save, for which staging memory is allocated. The
  // hosts are those of `comm`. `listener` is called on the training thread of all ranks.
  static Result<std::unique_ptr<CheckpointWriter>> Start(Communicator& comm,
                                                         const CheckpointOptions& options,
                                                         Manifest common, CheckpointLease lease,
                                                         SaveListener listener);
  // Abandon(), but waits WorkerThread::kPatience for a running task of the helper to end. What is
  // not committed is lost.
  ~CheckpointWriter() { EndThreads(WorkerThread::kPatience); }
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  [[nodiscard]] std::size_t staging_bytes() const;
  [[nodiscard]] bool pending() const { return !pending_.empty(); }  // the same on all ranks

  // For saves that begin from now on.
  void SetPlan(const Plan& plan) { common_.plan = plan; }

  // Whether another save can begin without waiting; the same on all ranks.
  [[nodiscard]] bool has_room() const { return pending_.size() < 2; }
  // Waits until another save can begin; returns false instead of waiting for a save that takes
  // longer than options.patience. Collective if two are pending.
  Result<bool> MakeRoom();
  // partial: counts of this rank, if cursor.micro_step > 0. Collective if two are pending. A cursor
  // already saved by this writer is not saved again, unless that failed.
  Status Save(const RunCursor& cursor, std::span<const BufferSource> sources,
              PartialUpdate partial = {});
  // Call at every boundary. Collective while pending().
  Status Poll();
  // Waits until nothing is pending. Collective while pending(). kIo if the last save failed.
  Status Finish();

  // Ends without waiting for the disk; not collective. A helper that hangs in a file system call is
  // abandoned, with the lease and everything it uses, until that call returns or the process ends;
  // its save may still be committed. No other function may be called afterwards.
  void Abandon() { EndThreads({}); }

 private:
  using SavePtr = std::shared_ptr<PendingSave>;

  CheckpointWriter(Communicator& comm, const CheckpointOptions& options, Manifest common,
                   CheckpointLease lease, SaveListener listener);
  Status Open();
  Status StartThreads();
  // Drops queued tasks, and waits up to `patience` for the running one.
  void EndThreads(std::chrono::milliseconds patience);
  void AddTask(std::function<void()> task);
  Status CopyToStaging(PendingSave& save, std::span<const BufferSource> sources);
  // One exchange about the oldest save, and its consequences.
  Status Advance(bool wait);
  // The report of this rank about it, after at most options.exchange_every.
  SaveReport LocalReport(const PendingSave& save, bool wait);
  void WarnWhenLate(PendingSave& save, std::span<const SaveReport> reports);
  [[nodiscard]] GiveUp ShouldGiveUp() const;
  Status StopWaiting(const PendingSave& save, GiveUp why);
  void Commit(const SavePtr& save, std::span<const SaveReport> reports);
  Status Fail(const SavePtr& save);
  // Ends the save, on all ranks, with this status.
  Status Settle(const SavePtr& save, Status status);
  [[nodiscard]] double Since(std::chrono::steady_clock::time_point start) const {
    return SecondsSince(start, options_.now());
  }

  Communicator& comm_;
  const CheckpointOptions options_;
  Manifest common_;
  const SaveListener listener_;
  const std::shared_ptr<SaveState> state_;  // shared with the threads
  std::optional<Generation> last_;          // the last one passed to Save() that has not failed
  std::int64_t failed_in_row_ = 0;
  Status last_failure_;
  Status given_up_;
  // In Save() and Finish(): since when the disk has made no progress.
  std::optional<std::chrono::steady_clock::time_point> wait_began_;
  double room_wait_s_ = 0;       // of MakeRoom() since the last Save()
  std::deque<SavePtr> pending_;  // oldest first; the same on all ranks
  std::unique_ptr<WorkerThread> helper_;
  std::unique_ptr<WorkerThread>
      lease_heartbeat_;  // rank 0: signs of life continue while a task hangs
};

}  // namespace gaccd
