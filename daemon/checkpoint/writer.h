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
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/seconds.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/rundir/folder_owner.h"

namespace gaccd {

// Where the bytes of a buffer come from: any range of it, copied when asked. For device memory that
// is a copy to the host; only this rank's part is asked for.
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
  std::int64_t fail_limit = 3;  // >= 1
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

// What the manifests of a run have in common.
struct CheckpointIdentity {
  std::string program;
  std::string job_text;
  Plan plan;  // plan.world() == comm.size()
  std::vector<ParameterRecord> parameters;
  std::vector<BufferSpec> buffers;  // that every save has: staging memory is taken for them
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
  std::optional<WriterLease> lease;  // on rank 0
};

class CheckpointWriter {
 public:
  // Collective. Rank 0 takes the lease of the folder; all get its error (kConfig: in use by ...).
  static Result<CheckpointLease> Claim(Communicator& comm, const CheckpointOptions& options,
                                       const OwnerName& me);

  // Collective. `listener` is called on the training thread, on all ranks alike.
  static Result<std::unique_ptr<CheckpointWriter>> Start(Communicator& comm,
                                                         const CheckpointOptions& options,
                                                         CheckpointIdentity identity,
                                                         CheckpointLease lease,
                                                         SaveListener listener);
  // Abandon(), but a task of the helper that is under way has 5 s to end: what it does is then
  // really over. What is not committed is lost.
  virtual ~CheckpointWriter() = default;
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  [[nodiscard]] virtual std::size_t staging_bytes() const = 0;
  [[nodiscard]] virtual bool pending() const = 0;  // the same on all ranks

  // Whether another save can begin without waiting; the same on all ranks.
  [[nodiscard]] virtual bool has_room() const = 0;
  // Waits until it can, but not for a save that a disk is at for options.patience: false.
  // Collective when two are pending.
  virtual Result<bool> MakeRoom() = 0;
  // `window`: what this rank counted, when cursor.micro_step > 0. Collective when two are pending.
  // A cursor that was saved before by this writer is not saved again, unless that failed.
  virtual Status Save(const RunCursor& cursor, std::span<const BufferSource> sources,
                      WindowShare window = {}) = 0;
  // At every boundary. Collective while pending().
  virtual Status Poll() = 0;
  // Waits until nothing is pending. Collective while pending(). kIo when the last save failed.
  virtual Status Finish() = 0;

  // Leaves without waiting for the disk; not collective. A helper that hangs in a call to the file
  // system is left behind, with the lease and all that it uses, until that call returns or the
  // process ends; what it was at may still get committed. Nothing else may be called from then on.
  virtual void Abandon() = 0;

 protected:
  CheckpointWriter() = default;
};

}  // namespace gaccd
