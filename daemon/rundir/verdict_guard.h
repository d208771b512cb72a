// VerdictGuard: a child process of rank 0 that outlives it, and writes verdict.json if rank 0 was
// killed and no other rank has done so: mpirun kills all ranks at the second Ctrl-C, or a second
// after the first, and a run of one rank has no others. Under srun `gaccd verdict` handles this
// case.
//
// It is a fork of this process without its open files, in its own session, so that signals for the
// run do not reach it; it sleeps until this process ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "collectives/base/environment.h"
#include "collectives/base/files.h"
#include "daemon/telemetry/events.h"

namespace gaccd {

class VerdictGuard {
 public:
  // How long the other ranks have to write the verdict after the end of rank 0.
  static constexpr int kPatienceSeconds = 4;

  // Call before this process has threads. Null if none is needed (another rank, by the launcher's
  // environment; a step of srun) or none can be created.
  static std::unique_ptr<VerdictGuard> Start(const Environment& environment);
  ~VerdictGuard();  // calls Release()
  VerdictGuard(const VerdictGuard&) = delete;
  VerdictGuard& operator=(const VerdictGuard&) = delete;

  // Sets the attempt to write for. A folder whose path exceeds 4095 bytes is not guarded.
  void Watch(const RunIdentity& who, const std::string& attempt_dir, std::int64_t world,
             unsigned mode);
  // Finished updates and samples. Wait-free.
  void SetProgress(std::int64_t step, std::int64_t samples);
  // Ends the guard. Later calls do nothing.
  void Release();

 private:
  struct Shared;  // memory shared by both processes
  VerdictGuard(Shared* shared, FileDescriptor alive) : shared_(shared), alive_(std::move(alive)) {}
  static std::string AllEnded(const std::string& when, const Shared& shared);
  [[noreturn]] static void Run(const Shared& shared, int alive, pid_t launcher);

  Shared* shared_;
  FileDescriptor alive_;  // closed by the system when this process ends
};

}  // namespace gaccd
