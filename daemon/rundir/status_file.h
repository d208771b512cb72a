// StatusFile: STATUS.json, written at the start, every few seconds by a separate thread (so that it
// is current during long updates, and a slow disk never delays training), and at the end.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "collectives/base/thread.h"
#include "daemon/telemetry/run_status.h"

namespace gaccd {

class StatusFile {
 public:
  // Completes the status before every write except the first; called without locks. If it fails,
  // nothing is written, as if the write had failed.
  using Beat = std::function<Status(RunStatus&)>;

  // Writes `first` at once; returns an error if that fails.
  static Result<std::unique_ptr<StatusFile>> Start(std::string path, RunStatus first, Beat beat,
                                                   std::chrono::milliseconds period,
                                                   unsigned mode = kFileMode);
  ~StatusFile();  // ends the thread; writes nothing
  StatusFile(const StatusFile&) = delete;
  StatusFile& operator=(const StatusFile&) = delete;

  // Changes the status of the next write. Never waits for the disk.
  void Update(const std::function<void(RunStatus&)>& change);
  // Makes the thread write at once.
  void WriteSoon() { worker_->Wake(); }
  // Ends the thread and writes the last status, durably.
  Status Finish();

  // The first error of the thread.
  [[nodiscard]] Status first_failure() const;

 private:
  StatusFile(std::string path, RunStatus first, Beat beat, unsigned mode);
  void Write();
  void EndThread();

  const std::string path_;
  const Beat beat_;
  const unsigned mode_;
  mutable std::mutex mutex_;  // protects everything below
  RunStatus status_;
  std::int64_t failures_ = 0;
  Status first_failure_;
  std::unique_ptr<WorkerThread> worker_;
};

}  // namespace gaccd
