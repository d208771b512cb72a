#include "daemon/telemetry/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

bool AppendFile::Append(std::string line, Counted counted) {
  if (std::chrono::steady_clock::now() - last_check_ >= kCheckPeriod) ReopenIfRemoved();
  if (!line.ends_with('\n')) line += '\n';
  if (partial_line_) line.insert(line.begin(), '\n');
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(file_.get(), line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = EIO;
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  if (done == line.size()) {
    partial_line_ = false;
    if (counted == Counted::kYes) ++since_check_;
    return true;
  }
  Fail(ErrnoStatus("cannot write", path_));
  if (counted == Counted::kYes) ++dropped_;
  partial_line_ = partial_line_ || done > 0;
  return false;
}

void AppendFile::ReopenIfRemoved() {
  last_check_ = std::chrono::steady_clock::now();
  struct stat info {};
  const bool exists = ::fstat(file_.get(), &info) != 0 || info.st_nlink > 0;
  const std::int64_t lines = std::exchange(since_check_, 0);
  if (exists) return;
  dropped_ += lines;
  auto file = OpenFile(path_, O_WRONLY | O_APPEND | O_CREAT, mode_);
  if (!file.ok()) {
    Fail(Status(file.status()).WithContext("the file was removed"));
    return;
  }
  Fail({ErrorKind::kIo, StrCat("'", path_, "' was removed; it is created again")});
  file_ = *std::move(file);
  partial_line_ = false;
}

void AppendFile::Sync() {
  // EINVAL: not a file that can be synced (a pipe).
  if (::fsync(file_.get()) != 0 && errno != EINVAL) Fail(ErrnoStatus("cannot write", path_));
}

void AppendFile::Fail(Status status) {
  if (failures_++ == 0) first_failure_ = std::move(status);
}

}  // namespace gaccd
