#include "daemon/telemetry/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <string>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr int kDefaultColumns = 80;

int ColumnsOf(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// The standard output of the parent process, when that is a terminal.
FileDescriptor ParentsTerminal() {
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
  if (ColumnsOf(fd) > 0) return Terminal(fd, FileDescriptor());
  FileDescriptor outer = ParentsTerminal();
  if (!outer.valid()) return std::nullopt;
  return Terminal(fd, std::move(outer));
}

int Terminal::Columns() const {
  const int columns = ColumnsOf(outer_.valid() ? outer_.get() : fd_);
  return columns > 0 ? columns : kDefaultColumns;
}

bool Terminal::Ready() const {
  pollfd poll{.fd = fd_, .events = POLLOUT, .revents = 0};
  return ::poll(&poll, 1, 0) == 1 && (poll.revents & POLLOUT) != 0;
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
