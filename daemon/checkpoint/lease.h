// WriterLease: permission to write in a checkpoint folder. Held by rank 0 of a run.
//
// Two fences, because each has a hole:
//  - the owner file (rundir/folder_owner.h: flock, host, pid, sign of life) keeps a second job
//    out and names the first one; where flock does not work and the owner is cut off, it can be
//    taken over from a writer that still lives.
//  - the epoch: taking the lease claims the next number by creating ".epoch-NNNNNN" exclusively,
//    which file servers do for one of two callers. A writer whose number is no longer the highest
//    has been replaced: Check() fails and it commits nothing more. What slips between its check and
//    its rename does no harm: the generation has the old epoch in its name, so the new writer
//    neither overwrites nor prefers it.
//
// The file of the newest epoch also says where the newest training of the folder begins, if another
// one was there before it (--resume=never): every claim hands that on.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "collectives/base/result.h"
#include "daemon/rundir/folder_owner.h"

namespace gaccd {

// How often a lease is to show a sign of life.
inline constexpr std::chrono::seconds kLeasePeriod{10};

// Where the newest training of a checkpoint folder begins.
struct TrainingStart {
  std::int64_t since = 0;  // generations of earlier epochs belong to another training; 0: none does
  std::string from;  // what --resume said: "never", or an absolute path; empty where since is 0
};

// As the newest claim of the folder tells.
[[nodiscard]] TrainingStart NewestTraining(const std::string& folder);

class WriterLease {
 public:
  // Error kConfig names the owner: job, process, host. kIo: the folder cannot be written.
  static Result<WriterLease> Take(const std::string& folder, const OwnerName& me,
                                  const OwnerPatience& patience = {});
  // For a caller that adds no generation: the claim keeps the text of the one it replaces, so that
  // the next attempt of that job still finds what its earlier ones saved.
  static Result<WriterLease> TakeBetween(const std::string& folder, const OwnerName& me);

  [[nodiscard]] std::int64_t epoch() const { return epoch_; }
  // The first epoch of this job: an earlier attempt took it, or it is epoch(). Generations from it
  // on belong to this job.
  [[nodiscard]] std::int64_t job_since() const { return job_since_; }
  [[nodiscard]] const TrainingStart& training() const { return training_; }
  // From this epoch on the folder belongs to a training that began anew, or `from` a checkpoint of
  // another one. For good: a start that saves nothing does not bring back the one before.
  Status BeginTraining(const std::string& from);
  // kConfig when another writer has a higher epoch or the folder was replaced; kIo when that cannot
  // be found out.
  [[nodiscard]] Status Check() const;
  // A sign of life; at least every 20 s. Thread-safe.
  void Beat() const { owner_.Beat(); }

 private:
  static Result<WriterLease> TakeNext(const std::string& folder, const OwnerName& me,
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
