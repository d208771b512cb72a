// The files STOP and SAVE in the run folder: what an operator can ask for without a signal. Looked
// for by one rank, once a second, by a stat() each, from a thread of its own: the folder is on a
// shared file system, which may not answer for a while, and training does not wait for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "collectives/base/result.h"
#include "daemon/control/stop_signals.h"

namespace gaccd {

struct RequestFilesOptions {
  // For people, called by the thread: SAVE was served, but its file stays. May be empty.
  std::function<void(const std::string&)> warn = {};
  std::chrono::milliseconds pause{1000};
  // Of tests: whether there is a file. Empty: lstat().
  std::function<bool(const std::string& path)> exists = {};
};

// wish() and Saved() belong to one thread; they do not wait for the disk.
class RequestFiles {
 public:
  // run_dir empty: there are no files, wish() is always kNone. Waits for the first look, a second
  // at most, so that a STOP that was there before is seen at once.
  explicit RequestFiles(std::string run_dir, RequestFilesOptions options = {});
  // Waits for a look in progress.
  ~RequestFiles() = default;

  // kStop or kSave while the file is there, as of the last look.
  [[nodiscard]] StopWish wish() const { return wish_; }
  // SAVE is served, and is soon removed. STOP stays, so that a requeued attempt stops too.
  void Saved();

 private:
  void Run(const std::stop_token& stop);
  [[nodiscard]] StopWish Look() const;
  [[nodiscard]] Status RemoveSave() const;

  const std::string run_dir_;
  const RequestFilesOptions options_;
  std::atomic<StopWish> wish_ = StopWish::kNone;  // changed with mutex_
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool looked_ = false;
  bool served_ = false;  // SAVE is to be removed
  std::jthread thread_;  // the last: it uses the others
};

}  // namespace gaccd
