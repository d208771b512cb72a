// FolderOwner: ensures one active run per folder. The owner file "<run>/.owner" names the process
// that writes there; it is locked with flock while the run is active and emptied when it ends,
// never removed.
//
//   lock refused                                     a live run: refused
//   lock taken, or locks do not work here, and the file
//     is missing or empty                            free
//     names this host and a process that is gone     stale: taken over
//     names this host and a live process             refused
//     names another host, same SLURM job id, earlier restart      stale (requeued): taken over
//     names another host, last sign of life older than 60 s       stale: taken over
//     names another host, last sign of life younger               refused
//
// A sign of life is the file's modification time, which Beat() renews; ages are measured with the
// clock of the file server. A refused attempt is retried for a while. A killed process may hold its
// lock a moment longer. A requeued job may meet its previous attempt. A controller that lost its
// state may have started one attempt twice (the same job step) and then end one. If locks do not
// work (some Lustre and NFS mounts), two runs that start within milliseconds on different hosts are
// not detected.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "collectives/base/files.h"
#include "collectives/base/result.h"

namespace gaccd {

struct OwnerName {
  std::string job;
  int attempt = 0;
  std::int64_t step = -1;  // number of the srun step; -1: not in a job step
  std::string host;
  std::int64_t pid = 0;
  // start time of the process in clock ticks since boot: distinguishes reused pids
  std::int64_t started = 0;
};

// The name of this process.
[[nodiscard]] OwnerName MakeOwnerName(const std::string& job, int attempt, std::int64_t step = -1);

// How long to wait for an existing owner.
struct OwnerPatience {
  // of the same job: below Deadline::kWaitShare of --bound (60 s), as the other ranks wait for this
  // one in a collective.
  std::chrono::milliseconds own_job{30'000};
  std::chrono::milliseconds other{1'000};
};

class FolderOwner {
 public:
  // kConfig, with the owner: job, host, pid. kTempFail: the owner is an earlier or a second start
  // of the same job step, still alive. kIo: the folder cannot be written.
  static Result<FolderOwner> Acquire(const std::string& run_dir, const OwnerName& me,
                                     const OwnerPatience& patience = {});

  FolderOwner(FolderOwner&&) = default;
  FolderOwner& operator=(FolderOwner&&) = default;
  ~FolderOwner();  // calls Release()

  // OK while the path leads to the same folder, which this object keeps open, or to nothing, as
  // later writes then fail by themselves. kConfig: another user who may write in the folder above
  // has replaced it; nothing must be written there.
  [[nodiscard]] Status CheckInPlace() const;
  // Records a sign of life; call at least every 20 s.
  void Beat() const;
  // Waits up to 2 s for a file system that does not respond.
  void Release();

 private:
  // other: set if another process is the active owner.
  static Result<FolderOwner> TryOnce(const std::string& run_dir, const OwnerName& me,
                                     std::optional<OwnerName>* other);
  FolderOwner(std::string run_dir, FileDescriptor folder, FileDescriptor file, std::string text)
      : run_dir_(std::move(run_dir)),
        folder_(std::move(folder)),
        file_(std::move(file)),
        text_(std::move(text)) {}

  std::string run_dir_;
  FileDescriptor folder_;
  FileDescriptor file_;
  std::string text_;  // content of the owner file
};

}  // namespace gaccd
