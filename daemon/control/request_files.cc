#include "daemon/control/request_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

bool Exists(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0;
}

}  // namespace

StopWish RequestFiles::wish(Clock::time_point now) {
  if (run_dir_.empty() || now < next_look_) return wish_;
  next_look_ = now + kPause;
  wish_ = StopWish::kNone;
  if (Exists(StrCat(run_dir_, "/SAVE"))) wish_ = StopWish::kSave;
  if (Exists(StrCat(run_dir_, "/STOP"))) wish_ = StopWish::kStop;
  return wish_;
}

Status RequestFiles::Saved() {
  if (wish_ == StopWish::kSave) wish_ = StopWish::kNone;
  const std::string path = StrCat(run_dir_, "/SAVE");
  if (run_dir_.empty() || unlink(path.c_str()) == 0 || errno == ENOENT) return Status::Ok();
  return {ErrorKind::kIo, StrCat("remove ", path, ": ", std::strerror(errno))};
}

}  // namespace gaccd
