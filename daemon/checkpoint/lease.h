// WriterLease: permission to write in a checkpoint folder, held by rank 0 of a run.
//
// Two mechanisms, because neither is sufficient alone:
// - the owner file (rundir/folder_owner.h: flock, host, pid, sign of life) keeps a second job out
//   and names the first one. If flock does not work and the owner is disconnected, it can be taken
//   over from a writer that is still alive.
// - the epoch: taking the lease claims the next number by creating ".epoch-NNNNNN" exclusively,
//   which file servers grant to one of two callers. A writer whose number is no longer the highest
//   has been replaced: Check() fails and it commits nothing more. A commit between its check and
//   its rename is harmless: the generation has the old epoch in its name, so the new writer neither
//   overwrites nor prefers it.
//
// The file of the newest epoch also contains the start of the newest training of the folder, if
// there was another one before it (--resume=never): every claim copies it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "collectives/base/result.h"
#include "daemon/rundir/folder_owner.h"

namespace gaccd {

// Period of the signs of life of a lease.
inline constexpr std::chrono::seconds kLeasePeriod{10};

// The start of the newest training of a checkpoint folder.
struct TrainingStart {
  std::int64_t since = 0;  // generations of earlier epochs belong to another training; 0: none does
  std::string from;        // value of --resume: "never", or an absolute path; empty if since is 0
  // The newest start that went back to an older generation of this training, `back_to`. Until it
  // saves, no generation has an epoch from back_since on. 0: none did.
  std::int64_t back_since = 0;
  std::string back_to = {};
};

// According to the newest claim of the folder.
[[nodiscard]] TrainingStart NewestTraining(const std::string& folder);

class WriterLease {
 public:
  // kConfig, with the owner: job, process, host. kIo: the folder cannot be written.
  static Result<WriterLease> Acquire(const std::string& folder, const OwnerName& me,
                                     const OwnerPatience& patience = {});
  // For callers that add no generation: the claim keeps the text of the one it replaces, so that
  // the next attempt of that job still finds the checkpoints of earlier attempts.
  static Result<WriterLease> AcquireKeepingClaim(const std::string& folder, const OwnerName& me);

  [[nodiscard]] std::int64_t epoch() const { return epoch_; }
  // The first epoch of this job: that of an earlier attempt, or epoch(). Generations from it on
  // belong to this job.
  [[nodiscard]] std::int64_t job_since() const { return job_since_; }
  [[nodiscard]] const TrainingStart& training() const { return training_; }
  // From this epoch on the folder belongs to a training that started from scratch, or `from` a
  // checkpoint of another one. Permanent: a start that saves nothing does not restore the previous
  // one.
  Status BeginTraining(const std::string& from);
  // The training continues from its generation of this name. Permanent, too; nothing is recorded if
  // it is the newest of the folder.
  Status GoBackTo(const std::string& generation);
  // kConfig if another writer has a higher epoch or the folder was replaced; kIo if that cannot be
  // determined.
  [[nodiscard]] Status Check() const;
  // Records a sign of life; call at least every 20 s. Thread-safe.
  void Beat() const { owner_.Beat(); }

 private:
  [[nodiscard]] Status RewriteClaim() const;
  static Result<WriterLease> AcquireNext(const std::string& folder, const OwnerName& me,
                                         const OwnerPatience& patience, bool keeps_claim);
  WriterLease(std::string folder, FolderOwner owner, std::int64_t epoch, std::int64_t job_since,
              TrainingStart training)
      : folder_(std::move(folder)),
        owner_(std::move(owner)),
        epoch_(epoch),
        job_since_(job_since),
        training_(std::move(training)) {}

  std::string folder_;
  FolderOwner owner_;
  std::int64_t epoch_;
  std::int64_t job_since_;
  TrainingStart training_;
};

}  // namespace gaccd
