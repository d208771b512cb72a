#include "daemon/telemetry/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <thread>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr int kDefaultColumns = 80;

int GetColumns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// The standard output of the parent process if it is a terminal, otherwise invalid.
FileDescriptor OpenParentTerminal() {
  const std::string link = StrCat("/proc/", ::getppid(), "/fd/1");
  char target[PATH_MAX];
  const ssize_t size = ::readlink(link.c_str(), target, sizeof(target) - 1);
  if (size <= 0) return {};
  const std::string path(target, static_cast<std::size_t>(size));
  if (path.rfind("/dev/", 0) != 0) return {};  // a file or a pipe; never opened
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid() || ::isatty(file.get()) == 0) return {};
  return file;
}

}  // namespace

std::optional<Terminal> Terminal::Detect(int fd) {
  if (::isatty(fd) == 0) return std::nullopt;
  const char* term = std::getenv("TERM");
  if (term == nullptr || std::string_view(term) == "dumb") return std::nullopt;
  if (GetColumns(fd) > 0) return Terminal(fd, FileDescriptor());
  FileDescriptor outer = OpenParentTerminal();
  if (!outer.valid()) return std::nullopt;
  return Terminal(fd, std::move(outer));
}

int Terminal::Columns() const {
  const int columns = GetColumns(outer_.valid() ? outer_.get() : fd_);
  return columns > 0 ? columns : kDefaultColumns;
}

bool Terminal::Ready() const {
  pollfd poll{.fd = fd_, .events = POLLOUT, .revents = 0};
  return ::poll(&poll, 1, 0) == 1 && (poll.revents & POLLOUT) != 0;
}

TerminalOutput::~TerminalOutput() {
  constexpr std::chrono::milliseconds kPause{10};
  constexpr std::chrono::seconds kForSlowReader{5};
  const auto last = std::chrono::steady_clock::now() + kForSlowReader;
  while (file_ && std::chrono::steady_clock::now() < last && !file_->Flush(kPatience)) {
    if (file_->stalled_for().value_or(kPatience) >= kPatience) break;  // it does not read at all
  }
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (!Flush() && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(kPause);
}

void TerminalOutput::Write(std::string_view text) {
  const std::lock_guard lock(mutex_);
  Detect();
  if (file_) {
    const bool responds = !file_->stalled_for();
    file_->Add(std::string(text));
    if (responds) file_->Flush(kPatience);
    return;
  }
  if (!is_terminal_) {
    // Training continues if the reader is gone.
    [[maybe_unused]] const Status status = WriteAll(fd_, text, "output");
    return;
  }
  FlushLocked();
  if (pending_.empty()) text.remove_prefix(WriteSome(text));
  if (pending_.size() + text.size() > kMaxPendingBytes) {
    ++dropped_;
    return;
  }
  pending_ += text;
}

void TerminalOutput::Detect() {
  const std::string link = StrCat("/proc/self/fd/", fd_);
  char text[PATH_MAX];
  const ssize_t size = ::readlink(link.c_str(), text, sizeof(text));
  const std::string_view target(text, static_cast<std::size_t>(std::max(size, ssize_t{0})));
  if (target_ && *target_ == target) return;
  target_ = target;
  file_.reset();
  is_terminal_ = ::isatty(fd_) != 0;
  if (is_terminal_) return;
  FileDescriptor copy(::fcntl(fd_, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return;
  auto writer = LineWriter::Start(AppendFile(std::move(copy), "output", AppendFile::kNotAgain),
                                  [](const LineStamp& /*last*/, const DroppedLines& dropped) {
                                    return StrCat("gaccd: warning: ", dropped.lines,
                                                  dropped.lines == 1 ? " line is" : " lines are",
                                                  " lost: ", dropped.reason);
                                  });
  if (writer.ok()) file_ = *std::move(writer);  // otherwise there is no thread: writes block
}

bool TerminalOutput::Flush() {
  const std::lock_guard lock(mutex_);
  FlushLocked();
  return pending_.empty();
}

void TerminalOutput::FlushLocked() {
  if (!pending_.empty()) pending_.erase(0, WriteSome(pending_));
  if (dropped_ == 0 || !pending_.empty()) return;
  pending_ = StrCat("gaccd: warning: ", dropped_, dropped_ == 1 ? " line is" : " lines are",
                    " not shown: the terminal did not accept them\n");
  dropped_ = 0;
  pending_.erase(0, WriteSome(pending_));
}

int TerminalOutput::NonBlockingFd() {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return fd_;
  if (opened_.valid() && device_ == info.st_rdev) return opened_.get();
  // A separate open file: O_NONBLOCK on fd_ would affect every process that shares it, such as the
  // shell.
  const std::string path = StrCat("/proc/self/fd/", fd_);
  opened_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  device_ = info.st_rdev;
  return opened_.valid() ? opened_.get() : fd_;
}

std::size_t TerminalOutput::WriteSome(std::string_view text) {
  constexpr std::size_t kMaxAtOnce = 128;  // of a blocking descriptor: fits whenever it is writable
  const int fd = NonBlockingFd();
  std::size_t done = 0;
  while (done < text.size()) {
    std::string_view part = text.substr(done);
    if (fd == fd_) {
      pollfd poll{.fd = fd, .events = POLLOUT, .revents = 0};
      if (::poll(&poll, 1, 0) != 1 || (poll.revents & POLLOUT) == 0) return done;
      part = part.substr(0, kMaxAtOnce);
    }
    const ssize_t written = ::write(fd, part.data(), part.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno == EAGAIN ? done : text.size();
    done += static_cast<std::size_t>(written);
  }
  return done;
}

bool IsUtf8Locale(const char* lc_all, const char* lc_ctype, const char* lang) {
  for (const char* value : {lc_all, lc_ctype, lang}) {
    if (value == nullptr || *value == '\0') continue;
    std::string name(value);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name.find("utf-8") != std::string::npos || name.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace gaccd
