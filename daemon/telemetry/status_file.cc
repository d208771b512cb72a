#include "daemon/telemetry/status_file.h"

#include <pthread.h>
#include <signal.h>

#include <memory>
#include <system_error>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// The process' signals are for its main thread: a thread starts with the mask of its maker.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

StatusFile::StatusFile(std::string path, RunStatus first, Beat beat,
                       std::chrono::milliseconds period, unsigned mode)
    : path_(std::move(path)),
      beat_(std::move(beat)),
      period_(period),
      mode_(mode),
      status_(std::move(first)) {}

Result<std::unique_ptr<StatusFile>> StatusFile::Start(std::string path, RunStatus first, Beat beat,
                                                      std::chrono::milliseconds period,
                                                      unsigned mode) {
  GACCD_RETURN_IF_ERROR(ReplaceFile(path, StatusJson(first) + "\n", false, mode));
  std::unique_ptr<StatusFile> file(
      new StatusFile(std::move(path), std::move(first), std::move(beat), period, mode));
  const BlockSignals block;
  try {
    file->thread_ = std::thread([raw = file.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    return Status(ErrorKind::kOs, StrCat("cannot start the status thread: ", error.what()));
  }
  return file;
}

StatusFile::~StatusFile() { EndThread(); }

void StatusFile::Update(const std::function<void(RunStatus&)>& change) {
  const std::lock_guard lock(mutex_);
  change(status_);
}

void StatusFile::Run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, period_, [this] { return ending_; })) {
    RunStatus now = status_;
    now.write_errors = failures_;
    lock.unlock();
    beat_(now);
    Status status = ReplaceFile(path_, StatusJson(now) + "\n", false, mode_);
    lock.lock();
    if (!status.ok() && failures_++ == 0) first_failure_ = std::move(status);
  }
}

void StatusFile::EndThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status StatusFile::Finish() {
  EndThread();
  status_.write_errors += failures_;
  beat_(status_);
  return ReplaceFile(path_, StatusJson(status_) + "\n", true, mode_);
}

std::int64_t StatusFile::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

Status StatusFile::first_failure() const {
  const std::lock_guard lock(mutex_);
  return first_failure_;
}

}  // namespace gaccd
