// VerdictGuard: a child process of rank 0 that outlives it, and writes verdict.json when rank 0 was
// killed and no other rank has done so: mpirun kills them all at the second Ctrl-C, or a second
// after the first, and a run of one rank has no others. Under srun `gaccd verdict` judges what is
// missing.
//
// It is a fork of this process without its open files, in a session of its own, which no signal for
// the run reaches; it sleeps until this process ends.
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
  // How long the other ranks have to write the verdict, after the end of rank 0.
  static constexpr int kPatienceSeconds = 4;

  // Before this process has threads. Null where none is needed (another rank, by the launcher's
  // environment; a step of srun) or none can be had: then as without.
  static std::unique_ptr<VerdictGuard> Start(const Environment& environment);
  ~VerdictGuard();  // Release()
  VerdictGuard(const VerdictGuard&) = delete;
  VerdictGuard& operator=(const VerdictGuard&) = delete;

  // From now on it is to write for this attempt. A folder whose path has more than 4095 bytes is
  // not guarded.
  void Watch(const RunIdentity& who, const std::string& attempt_dir, std::int64_t world,
             unsigned mode);
  // Updates and samples so far. Wait-free.
  void SetProgress(std::int64_t step, std::int64_t samples);
  // It is not needed any more: it ends. Later calls do nothing.
  void Release();

 private:
  struct Shared;  // memory of both processes
  VerdictGuard(Shared* shared, FileDescriptor alive) : shared_(shared), alive_(std::move(alive)) {}
  static std::string AllEnded(const std::string& when, const Shared& shared);
  [[noreturn]] static void Run(const Shared& shared, int alive, pid_t launcher);

  Shared* shared_;
  FileDescriptor alive_;  // closed by the system when this process ends
};

}  // namespace gaccd
