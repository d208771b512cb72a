#include "daemon/stop/request_files.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {

struct RequestFiles::State {
  State(std::string folder, RequestFilesOptions how)
      : run_dir(std::move(folder)), options(std::move(how)) {}
  void Work();
  [[nodiscard]] StopRequest ReadRequests() const;
  [[nodiscard]] Status RemoveSave() const;

  const std::string run_dir;
  const RequestFilesOptions options;
  std::atomic<StopRequest> request = StopRequest::kNone;  // written under `mutex`
  std::mutex mutex;                                       // protects everything below
  std::condition_variable changed;
  bool looked = false;
  bool served = false;  // SAVE must be removed
};

RequestFiles::RequestFiles(std::string run_dir, RequestFilesOptions options) {
  constexpr std::chrono::seconds kFirstLook{1};
  if (run_dir.empty()) return;
  auto state = std::make_shared<State>(std::move(run_dir), std::move(options));
  auto worker = WorkerThread::Start(
      "the thread of STOP and SAVE", [state] { state->Work(); }, state->options.pause);
  if (!worker.ok()) {
    if (state->options.warn) {
      state->options.warn(
          StrCat("the files STOP and SAVE are not checked: ", worker.status().message()));
    }
    return;
  }
  worker_ = *std::move(worker);
  worker_->Wake();
  state_ = std::move(state);
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, kFirstLook, [this] { return state_->looked; });
}

RequestFiles::~RequestFiles() {
  if (worker_) worker_->End(kPatience);
}

void RequestFiles::State::Work() {
  std::unique_lock lock(mutex);
  const bool remove = std::exchange(served, false);
  lock.unlock();
  const Status removed = remove ? RemoveSave() : Status::Ok();
  if (!removed.ok() && options.warn) {
    options.warn(
        StrCat("the request is carried out, but its file cannot be removed: ", removed.message()));
  }
  const StopRequest found = ReadRequests();
  lock.lock();
  if (!served) request = found;  // otherwise it may have seen the SAVE that was served meanwhile
  looked = true;
  changed.notify_all();
}

StopRequest RequestFiles::State::ReadRequests() const {
  const auto exists = [this](const std::string& path) {
    return options.exists ? options.exists(path) : PathExists(path);
  };
  if (exists(StrCat(run_dir, "/STOP"))) return StopRequest::kStop;
  return exists(StrCat(run_dir, "/SAVE")) ? StopRequest::kSave : StopRequest::kNone;
}

Status RequestFiles::State::RemoveSave() const {
  const std::string path = StrCat(run_dir, "/SAVE");
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return Status::Ok();
  return ErrnoStatus("remove", path);
}

StopRequest RequestFiles::request() const {
  return state_ ? state_->request.load() : StopRequest::kNone;
}

void RequestFiles::Saved() {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->served = true;
    if (state_->request == StopRequest::kSave) state_->request = StopRequest::kNone;
  }
  worker_->Wake();
}

}  // namespace gaccd
