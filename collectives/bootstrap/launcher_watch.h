// LauncherWatch: ends this process when the process that started it (mpirun, or SLURM's slurmstepd)
// has ended.
//
// Open MPI 4 ends the ranks of a launcher that was killed; with Open MPI 5 they would continue, and
// nobody could see or stop them. Linux' PR_SET_PDEATHSIG cannot be used: it is sent at the end of
// the thread that started this process, and launchers use threads for that.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "collectives/base/files.h"

namespace gaccd {

// Whether the parent is a launcher by its name: mpirun, a daemon of Open MPI, or SLURM's
// slurmstepd. A shell or a profiler between them may end earlier than its rank: by a signal that
// asks the rank for a save, or after nohup.
[[nodiscard]] bool IsStartedByLauncher();

class LauncherWatch {
 public:
  // Exit code 69 with "gaccd on `host`: rank N: ..." on stderr. Null if there is nothing to watch:
  // the parent is in another PID namespace, or no thread or pipe can be created.
  static std::unique_ptr<LauncherWatch> Start(const std::string& host, int rank);
  ~LauncherWatch();
  LauncherWatch(const LauncherWatch&) = delete;
  LauncherWatch& operator=(const LauncherWatch&) = delete;

 private:
  LauncherWatch() = default;

  FileDescriptor stop_;  // closed to end the thread
  std::thread thread_;
};

}  // namespace gaccd
