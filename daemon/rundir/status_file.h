// STATUS.json: written at the start, every few seconds by a thread of its own (so that it stays
// fresh while an update takes long, and a slow disk never delays training), and at the end.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "collectives/base/worker_thread.h"
#include "daemon/telemetry/run_status.h"

namespace gaccd {

class StatusFile {
 public:
  // Completes what is about to be written. Called before every write but the first, without locks.
  // Where it fails nothing is written, as where the write fails.
  using Beat = std::function<Status(RunStatus&)>;

  // Writes `first` at once; its failure is the caller's error.
  static Result<std::unique_ptr<StatusFile>> Start(std::string path, RunStatus first, Beat beat,
                                                   std::chrono::milliseconds period,
                                                   unsigned mode = kFileMode);
  ~StatusFile();  // ends the thread; writes nothing
  StatusFile(const StatusFile&) = delete;
  StatusFile& operator=(const StatusFile&) = delete;

  // Changes what the next write says. Never waits for the disk.
  void Update(const std::function<void(RunStatus&)>& change);
  // The thread writes at once, instead of at the end of the period.
  void WriteSoon() { worker_->Wake(); }
  // Ends the thread and writes the last state, down to the disk.
  Status Finish();

  // How many writes of the thread failed, and the first of them.
  [[nodiscard]] std::int64_t failures() const;
  [[nodiscard]] Status first_failure() const;

 private:
  StatusFile(std::string path, RunStatus first, Beat beat, unsigned mode);
  void Write();
  void EndThread();

  const std::string path_;
  const Beat beat_;
  const unsigned mode_;
  mutable std::mutex mutex_;  // of everything below
  RunStatus status_;
  std::int64_t failures_ = 0;
  Status first_failure_;
  std::unique_ptr<WorkerThread> worker_;
};

}  // namespace gaccd
