// One live run per folder. The owner file "<run>/.owner" names the process that writes there; it is
// locked with flock while the run lives and emptied when it ends, never removed.
//
//   lock refused                                     a live run: refused
//   lock taken, or locks do not work here, and the file
//     is missing or empty                            free
//     names this host and a process that is gone     stale: taken over
//     names this host and a process that lives       refused
//     names another host, same SLURM job id, earlier restart      stale (requeued): taken over
//     names another host, last sign of life older than 60 s       stale: taken over
//     names another host, last sign of life younger               refused
//
// A sign of life is the file's modification time, which Beat() renews; ages are taken by the clock
// of the file server. What is refused is tried again for a while: a process that was killed may
// hold its lock a moment longer, a job that was requeued may meet the attempt before it, and a
// controller that lost its state may have started one attempt twice (the same job step), and end
// one. Where locks do not work (some Lustre and NFS mounts), two runs that start within
// milliseconds on different hosts are not distinguished.
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
  std::int64_t step = -1;  // srun's number of it; -1: not in a job step
  std::string host;
  std::int64_t pid = 0;
  std::int64_t started = 0;  // of the process, in clock ticks since boot: distinguishes reused pids
};

// This process, as the owner of a folder.
[[nodiscard]] OwnerName MakeOwnerName(const std::string& job, int attempt, std::int64_t step = -1);

// How long to wait for an owner who is there.
struct OwnerPatience {
  // The same job's: below Deadline::kWaitShare of --bound (60 s), as the other ranks wait for this
  // one in a collective.
  std::chrono::milliseconds own_job{30'000};
  std::chrono::milliseconds other{1'000};
};

class FolderOwner {
 public:
  // Error kConfig names the owner: job, host, pid. kTempFail: that is an earlier or a second start
  // of the same job step, which still lives. kIo: the folder cannot be written.
  static Result<FolderOwner> Take(const std::string& run_dir, const OwnerName& me,
                                  const OwnerPatience& patience = {});

  FolderOwner(FolderOwner&&) = default;
  FolderOwner& operator=(FolderOwner&&) = default;
  ~FolderOwner();  // Release()

  // OK while the path of the folder leads to the folder that was taken, of which a descriptor is
  // held, and where it leads nowhere: what is missing fails by itself. kConfig: others may write in
  // the folder above, and one of them has put another folder there; nothing must be written in
  // that.
  [[nodiscard]] Status CheckInPlace() const;
  // A sign of life; at least every 20 s.
  void Beat() const;
  // Waits 2 s at most for a file system that does not answer.
  void Release();

 private:
  // `other`: set when somebody else lives there.
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
  std::string text_;  // of the owner file
};

}  // namespace gaccd
