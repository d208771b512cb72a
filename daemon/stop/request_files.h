// RequestFiles: the files STOP and SAVE in the run folder, requests by an operator without a
// signal. One rank checks them once per second with stat(), on a separate thread: the folder is on
// a shared file system, which may not respond for a while, and training does not wait for it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "collectives/base/worker_thread.h"
#include "daemon/stop/stop_signals.h"

namespace gaccd {

// The functions must outlive the thread, which may be abandoned.
struct RequestFilesOptions {
  // Called by the thread with a message for users: SAVE was served, but its file cannot be removed.
  // May be empty.
  std::function<void(const std::string&)> warn = {};
  std::chrono::milliseconds pause{1000};
  // For tests: whether a file exists. Empty: lstat().
  std::function<bool(const std::string& path)> exists = {};
};

// request() and Saved() are used by one thread; they do not wait for the disk.
class RequestFiles {
 public:
  // How long ~RequestFiles() waits for a check in progress; a hanging thread is abandoned.
  static constexpr std::chrono::milliseconds kPatience{500};

  // run_dir empty: no files, request() is always kNone. Waits up to a second for the first check,
  // so that an existing STOP is detected at once.
  explicit RequestFiles(std::string run_dir, RequestFilesOptions options = {});
  ~RequestFiles();
  RequestFiles(const RequestFiles&) = delete;
  RequestFiles& operator=(const RequestFiles&) = delete;

  // kStop or kSave while the file exists, according to the last check.
  [[nodiscard]] StopRequest request() const;
  // SAVE was served and will be removed. STOP is kept, so that a requeued attempt stops too.
  void Saved();

 private:
  struct State;  // shared with the thread

  std::shared_ptr<State> state_;  // null: no files
  std::unique_ptr<WorkerThread> worker_;
};

}  // namespace gaccd
