// The files STOP and SAVE in the run folder: what an operator can ask for without a signal. Looked
// for by one rank, once a second, by a stat() each, from a thread of its own: the folder is on a
// shared file system, which may not answer for a while, and training does not wait for it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "collectives/base/worker_thread.h"
#include "daemon/stop/stop_signals.h"

namespace gaccd {

// The functions outlive the thread: it may be left behind.
struct RequestFilesOptions {
  // For people, called by the thread: SAVE was served, but its file stays. May be empty.
  std::function<void(const std::string&)> warn = {};
  std::chrono::milliseconds pause{1000};
  // Of tests: whether there is a file. Empty: lstat().
  std::function<bool(const std::string& path)> exists = {};
};

// request() and Saved() belong to one thread; they do not wait for the disk.
class RequestFiles {
 public:
  // How long ~RequestFiles() waits for a look in progress; a thread that hangs in one is left
  // behind.
  static constexpr std::chrono::milliseconds kPatience{500};

  // run_dir empty: there are no files, request() is always kNone. Waits for the first look, a
  // second at most, so that a STOP that was there before is seen at once.
  explicit RequestFiles(std::string run_dir, RequestFilesOptions options = {});
  ~RequestFiles();
  RequestFiles(const RequestFiles&) = delete;
  RequestFiles& operator=(const RequestFiles&) = delete;

  // kStop or kSave while the file is there, as of the last look.
  [[nodiscard]] StopRequest request() const;
  // SAVE is served, and is soon removed. STOP stays, so that a requeued attempt stops too.
  void Saved();

 private:
  struct State;  // shared with the thread

  std::shared_ptr<State> state_;  // null: there are no files
  std::unique_ptr<WorkerThread> worker_;
};

}  // namespace gaccd
