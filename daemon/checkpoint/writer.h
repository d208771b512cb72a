// CheckpointWriter: saves a run while it trains. One per rank; used by the training thread, which
// alone may use the communicator. Every rank calls the same functions at the same boundaries.
//
//   boundary u    Save(): copies this rank's parts into one of two staging buffers     training
//   meanwhile     shard: temporary name, write, fsync, rename, fsync, read again       helper
//   boundary v    Poll(): ranks tell each other their digests in one small AllGather    training
//   meanwhile     rank 0: lease checked, manifest written the same way, old ones pruned helper
//   boundary w    Poll(): rank 0 tells that it is committed                             training
//
// The helper thread never touches the communicator, so no second channel between the ranks is
// needed; Poll() costs one AllGather of 72 bytes a rank at boundaries where a save is under way,
// else nothing. Training waits only in Save(), when two generations are under way.
//
// A save that fails (kIo on any rank) is given up on all ranks; the last good generation stays,
// the listener is told, training goes on. After `fail_limit` in a row the error is returned. Any
// other error, such as a lost lease, ends the run at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/telemetry/folder_owner.h"

namespace gaccd {

// Where the bytes of a buffer come from: any range of it, copied when asked. For device memory that
// is a copy to the host; only this rank's part is asked for.
struct BufferSource {
  BufferSpec spec;
  std::function<Status(std::uint64_t offset, std::span<std::byte> out)> copy;
};
// Of host memory that stays as it is during Save().
[[nodiscard]] BufferSource HostSource(std::string name, std::span<const std::byte> bytes,
                                      bool per_rank = false);

struct CheckpointOptions {
  std::string folder;         // made if it is not there
  bool group_access = false;  // folders 0750 and files 0640 instead of 0700 and 0600
  KeepPolicy keep;
  std::int64_t fail_limit = 3;  // >= 1
  std::uint64_t block_bytes = std::uint64_t{1} << 20;
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
  std::uint64_t bytes = 0;         // of this rank
  double copy_s = 0;               // training stood still so long: for the copy
  double wait_s = 0;               // and for a free staging buffer
  double total_s = 0;              // from Save() until it is known to be committed
  std::string pruned;              // on rank 0: what could not be removed, and why; else empty
};
using SaveListener = std::function<void(const SaveEvent&)>;

// The right to write in a folder. Who goes on from what stands there takes it before he looks: from
// then on no writer before him commits anything that he does not see. Its sign of life begins with
// Start(); until then the run folder's owner is what keeps other runs out.
struct WriterRight {
  std::int64_t epoch = 0;
  std::int64_t job_since = 0;        // the first epoch of this job: lease.h
  std::optional<WriterLease> lease;  // on rank 0
};

class CheckpointWriter {
 public:
  // Collective. Rank 0 takes the lease of the folder; all get its error (kConfig: in use by ...).
  static Result<WriterRight> Claim(Communicator& comm, const CheckpointOptions& options,
                                   const OwnerName& me);

  // Collective. `listener` is called on the training thread, on all ranks alike.
  static Result<std::unique_ptr<CheckpointWriter>> Start(Communicator& comm,
                                                         const CheckpointOptions& options,
                                                         CheckpointIdentity identity,
                                                         WriterRight right, SaveListener listener);
  // With a right that is claimed now.
  static Result<std::unique_ptr<CheckpointWriter>> Start(Communicator& comm,
                                                         const CheckpointOptions& options,
                                                         CheckpointIdentity identity,
                                                         const OwnerName& me,
                                                         SaveListener listener);
  virtual ~CheckpointWriter() = default;  // ends the helper; what is not committed is lost
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  [[nodiscard]] virtual std::int64_t epoch() const = 0;
  [[nodiscard]] virtual std::size_t staging_bytes() const = 0;
  [[nodiscard]] virtual bool pending() const = 0;  // the same on all ranks

  // `window`: what this rank counted, when cursor.micro_step > 0. Collective when two are pending.
  // A cursor that was saved before by this writer is not saved again.
  virtual Status Save(const RunCursor& cursor, std::span<const BufferSource> sources,
                      WindowShare window = {}) = 0;
  // At every boundary. Collective while pending().
  virtual Status Poll() = 0;
  // Waits until nothing is pending. Collective while pending(). kIo when the last save failed.
  virtual Status Finish() = 0;

 protected:
  CheckpointWriter() = default;
};

}  // namespace gaccd
