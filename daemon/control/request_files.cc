#include "daemon/control/request_files.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {

RequestFiles::RequestFiles(std::string run_dir, RequestFilesOptions options)
    : run_dir_(std::move(run_dir)), options_(std::move(options)) {
  constexpr std::chrono::seconds kFirstLook{1};
  if (run_dir_.empty()) return;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  } catch (const std::system_error& error) {
    if (options_.warn) options_.warn(StrCat("STOP and SAVE are not looked for: ", error.what()));
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kFirstLook, [this] { return looked_; });
}

void RequestFiles::Run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const bool served = std::exchange(served_, false);
    lock.unlock();
    const Status removed = served ? RemoveSave() : Status::Ok();
    if (!removed.ok() && options_.warn) {
      options_.warn(StrCat("the request is served, but its file stays: ", removed.message()));
    }
    const StopWish found = Look();
    lock.lock();
    if (!served_) wish_ = found;  // else it may have seen the SAVE that was served meanwhile
    looked_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, stop, options_.pause, [this] { return served_; });
  }
}

StopWish RequestFiles::Look() const {
  const auto exists = [this](const std::string& path) {
    return options_.exists ? options_.exists(path) : PathExists(path);
  };
  if (exists(StrCat(run_dir_, "/STOP"))) return StopWish::kStop;
  return exists(StrCat(run_dir_, "/SAVE")) ? StopWish::kSave : StopWish::kNone;
}

Status RequestFiles::RemoveSave() const {
  const std::string path = StrCat(run_dir_, "/SAVE");
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return Status::Ok();
  return ErrnoStatus("remove", path);
}

void RequestFiles::Saved() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    served_ = true;
    if (wish_ == StopWish::kSave) wish_ = StopWish::kNone;
  }
  changed_.notify_all();
}

}  // namespace gaccd
