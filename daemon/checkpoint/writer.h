// CheckpointWriter: saves a run while it trains. One per rank; used by the training thread, which
// alone may use the communicator. Every rank calls the same functions at the same boundaries.
//
//   boundary u    Save(): copies this rank's parts into one of two staging buffers     training
//   meanwhile     shard: temporary name, write, fsync, rename, fsync, read again       helper
//   boundary v    Poll(): ranks exchange their digests in one small AllGather          training
//   meanwhile     rank 0: lease checked, manifest written the same way, old ones pruned helper
//   boundary w    Poll(): rank 0 reports the commit                                    training
//
// The helper thread never touches the communicator, so no second channel between the ranks is
// needed; Poll() costs one AllGather of 104 bytes a rank at boundaries where a save is under way,
// else nothing. Training waits only in MakeRoom() and Save(), when two generations are under way,
// and in Finish(); while it does, the ranks exchange twice a second, so that a slow disk is no lost
// rank.
//
// A save that fails (kIo on any rank) is given up on all ranks; the last good generation stays,
// the listener is called, training continues, and the same cursor may be saved again. After
// `fail_limit` in a row the error is returned. Any other error, such as a lost lease, ends the run
// at once.
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
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/seconds.h"
#include "collectives/base/worker_thread.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/rundir/folder_owner.h"

namespace gaccd {

// Where the bytes of a buffer come from: any range of it, copied when asked. For device memory that
// is a copy to the host; only this rank's part is asked for. May be collective: every save asks
// every rank once, at worst for nothing.
struct BufferSource {
  BufferSpec spec;
  std::function<Status(std::uint64_t offset, std::span<std::byte> out)> copy;
};

// Whether, and why, a disk is not waited for.
enum class GiveUp : std::int64_t { kNo, kDisk, kNoTime, kAsked };

struct CheckpointOptions {
  std::string folder;         // made if it is not there
  bool group_access = false;  // folders 0750 and files 0640 instead of 0700 and 0600
  KeepPolicy keep;
  std::int64_t fail_limit = 3;        // >= 1
  OwnerPatience lease_patience = {};  // with another writer
  std::uint64_t block_bytes = std::uint64_t{1} << 20;

  // Called on the training thread of rank 0: a save that is still being written `alarm_after` it
  // began, once a save, found out by the first Poll() from then on; a file system that may run
  // full. May be empty.
  std::function<void(const std::string& text)> warn;
  std::chrono::milliseconds alarm_after{10'000};
  // A save that is under way for so long does not hold up training: MakeRoom() is false.
  std::chrono::milliseconds patience{2'000};
  // Save() and Finish() wait so long for a disk that gets nothing done; 0: without a limit. Then
  // they end with kTempFail on all ranks, which names the folder.
  std::chrono::milliseconds end_patience{0};
  // Asked on the training thread of every rank, at each exchange, while Save() or Finish() waits
  // for a disk. Once any rank says so the wait ends on all: kAsked with kInterrupted, kNoTime with
  // kTempFail. May be empty.
  std::function<GiveUp()> give_up;
  // The longest a rank waits for its disk between two exchanges: far below any bound of a
  // communicator.
  std::chrono::milliseconds exchange_every{500};
  NowFunction now = std::chrono::steady_clock::now;  // also called by the helper
};

struct SaveEvent {
  Generation generation;
  Status status;                   // OK: committed
  std::int64_t failed_in_row = 0;  // this one included
  double copy_s = 0;               // how long training waited for the copy
  double wait_s = 0;               // and for a free staging buffer
  double write_s = 0;              // the helper's time for its shard; of the slowest rank
  double commit_s = 0;             // and for the manifest, on rank 0
  double total_s = 0;              // from Save() until it is known to be committed: at a boundary
  std::string prune_problem;       // on rank 0: what could not be removed, and why; else empty

  // What a save takes when nobody waits for boundaries.
  [[nodiscard]] double save_s() const { return copy_s + write_s + commit_s; }
};
using SaveListener = std::function<void(const SaveEvent&)>;

// The lease to write in a folder. A run that resumes from checkpoints there takes it before it
// looks for them: from then on no earlier writer commits anything that it does not see. Its sign of
// life begins with Start(); until then the run folder's owner is what keeps other runs out.
struct CheckpointLease {
  std::int64_t epoch = 0;
  std::int64_t job_since = 0;        // the first epoch of this job: lease.h
  TrainingStart training;            // the newest of the folder
  std::optional<WriterLease> lease;  // on rank 0

  // The folder belongs to another training from now on: WriterLease::BeginTraining(). Called on all
  // ranks; rank 0 writes.
  Status BeginTraining(const std::string& from);
};

struct PendingSave;
struct SaveReport;
struct SaveState;

class CheckpointWriter {
 public:
  // Collective. For a run that saves nothing, and so claims nothing: NewestTraining() of rank 0.
  static Result<TrainingStart> NewestTrainingOf(Communicator& comm, const std::string& folder);

  // Collective. Rank 0 takes the lease of the folder; all get its error (kConfig: in use by ...).
  static Result<CheckpointLease> Claim(Communicator& comm, const CheckpointOptions& options,
                                       const OwnerName& me);

  // Collective. common: what the manifests of a run have in common: program, job_text, parameters,
  // plan (of this world), and the buffers that every save has: staging memory is taken for them.
  // The hosts are those of `comm`.
  // `listener` is called on the training thread, on all ranks alike.
  static Result<std::unique_ptr<CheckpointWriter>> Start(Communicator& comm,
                                                         const CheckpointOptions& options,
                                                         Manifest common, CheckpointLease lease,
                                                         SaveListener listener);
  // Abandon(), but a task of the helper that is under way has WorkerThread::kPatience to end: what
  // it does is then really over. What is not committed is lost.
  ~CheckpointWriter() { EndThreads(WorkerThread::kPatience); }
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  [[nodiscard]] std::size_t staging_bytes() const;
  [[nodiscard]] bool pending() const { return !pending_.empty(); }  // the same on all ranks

  // Of the saves that begin from now on.
  void SetPlan(const Plan& plan) { common_.plan = plan; }

  // Whether another save can begin without waiting; the same on all ranks.
  [[nodiscard]] bool has_room() const { return pending_.size() < 2; }
  // Waits until it can, but not for a save that a disk is at for options.patience: false.
  // Collective when two are pending.
  Result<bool> MakeRoom();
  // `window`: what this rank counted, when cursor.micro_step > 0. Collective when two are pending.
  // A cursor that was saved before by this writer is not saved again, unless that failed.
  Status Save(const RunCursor& cursor, std::span<const BufferSource> sources,
              WindowShare window = {});
  // At every boundary. Collective while pending().
  Status Poll();
  // Waits until nothing is pending. Collective while pending(). kIo when the last save failed.
  Status Finish();

  // Leaves without waiting for the disk; not collective. A helper that hangs in a call to the file
  // system is left behind, with the lease and all that it uses, until that call returns or the
  // process ends; what it was at may still get committed. Nothing else may be called from then on.
  void Abandon() { EndThreads({}); }

 private:
  using SavePtr = std::shared_ptr<PendingSave>;

  CheckpointWriter(Communicator& comm, const CheckpointOptions& options, Manifest common,
                   CheckpointLease lease, SaveListener listener);
  Status Open();
  Status StartThreads();
  // Drops the tasks that are not begun, and waits so long for the one under way.
  void EndThreads(std::chrono::milliseconds patience);
  void AddTask(std::function<void()> task);
  Status Stage(PendingSave& save, std::span<const BufferSource> sources);
  // One exchange about the oldest save, and what follows from it.
  Status Advance(bool wait);
  // What this rank reports about it, after options.exchange_every at the latest.
  SaveReport LocalReport(const PendingSave& save, bool wait);
  void WarnWhenLate(PendingSave& save, std::span<const SaveReport> reports);
  [[nodiscard]] GiveUp WantsToGiveUp() const;
  Status StopWaiting(const PendingSave& save, GiveUp why);
  void Commit(const SavePtr& save, std::span<const SaveReport> reports);
  Status Fail(const SavePtr& save);
  // The save is over, on all ranks, with this status.
  Status Settle(const SavePtr& save, Status status);
  [[nodiscard]] double Since(std::chrono::steady_clock::time_point start) const {
    return SecondsSince(start, options_.now());
  }

  Communicator& comm_;
  const CheckpointOptions options_;
  Manifest common_;
  const SaveListener listener_;
  const std::shared_ptr<SaveState> state_;  // shared with the threads
  std::optional<Generation> last_;          // that was handed to Save() and has not failed
  std::int64_t failed_in_row_ = 0;
  Status last_failure_;
  Status given_up_;
  // In Save() and Finish(): since when the disk has got nothing done.
  std::optional<std::chrono::steady_clock::time_point> wait_began_;
  std::deque<SavePtr> pending_;  // oldest first; the same on all ranks
  std::unique_ptr<WorkerThread> helper_;
  std::unique_ptr<WorkerThread> beater_;  // rank 0: the lease is beaten while a task hangs, too
};

}  // namespace gaccd
