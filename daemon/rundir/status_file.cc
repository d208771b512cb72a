#include "daemon/rundir/status_file.h"

#include <utility>

namespace gaccd {

StatusFile::StatusFile(std::string path, RunStatus first, Beat beat, unsigned mode)
    : path_(std::move(path)), beat_(std::move(beat)), mode_(mode), status_(std::move(first)) {}

Result<std::unique_ptr<StatusFile>> StatusFile::Start(std::string path, RunStatus first, Beat beat,
                                                      std::chrono::milliseconds period,
                                                      unsigned mode) {
  GACCD_RETURN_IF_ERROR(ReplaceFile(path, StatusJson(first) + "\n", false, mode));
  std::unique_ptr<StatusFile> file(
      new StatusFile(std::move(path), std::move(first), std::move(beat), mode));
  GACCD_ASSIGN_OR_RETURN(file->worker_,
                         WorkerThread::Start(
                             "the status thread", [raw = file.get()] { raw->Write(); }, period));
  return file;
}

StatusFile::~StatusFile() { EndThread(); }

void StatusFile::Update(const std::function<void(RunStatus&)>& change) {
  const std::lock_guard lock(mutex_);
  change(status_);
}

void StatusFile::Write() {
  RunStatus now;
  {
    const std::lock_guard lock(mutex_);
    now = status_;
    now.write_errors = failures_;
  }
  Status status = beat_(now);
  if (status.ok()) status = ReplaceFile(path_, StatusJson(now) + "\n", false, mode_);
  const std::lock_guard lock(mutex_);
  if (!status.ok() && failures_++ == 0) first_failure_ = std::move(status);
}

void StatusFile::EndThread() {
  if (worker_) worker_->End(WorkerThread::kNever);
}

Status StatusFile::Finish() {
  EndThread();
  status_.write_errors += failures_;
  GACCD_RETURN_IF_ERROR(beat_(status_));
  return ReplaceFile(path_, StatusJson(status_) + "\n", true, mode_);
}

Status StatusFile::first_failure() const {
  const std::lock_guard lock(mutex_);
  return first_failure_;
}

}  // namespace gaccd
