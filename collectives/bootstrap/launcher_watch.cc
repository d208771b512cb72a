#include "collectives/bootstrap/launcher_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "collectives/base/result.h"
#include "collectives/base/strings.h"
#include "collectives/base/thread.h"

namespace gaccd {
namespace {

constexpr std::chrono::milliseconds kForTheMessage{1'000};
constexpr int kPollMilliseconds = 250;  // where there is no pidfd_open: Linux before 5.3

// Returns when `stop` is closed on the other side.
void Watch(pid_t launcher, const FileDescriptor& process, const FileDescriptor& stop,
           const std::string& message) {
  pollfd polled[] = {{stop.get(), POLLIN, 0}, {process.get(), POLLIN, 0}};
  while (::getppid() == launcher) {
    (void)::poll(polled, 2, process.valid() ? -1 : kPollMilliseconds);
    if (polled[0].revents != 0) return;
  }
  (void)CallWithin(kForTheMessage, [message] {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, message.data(), message.size());
  });
  ::_exit(static_cast<int>(ErrorKind::kUnavailable));
}

}  // namespace

bool IsStartedByLauncher() {
  // Also mpirun.openmpi, orted, prterun.
  constexpr std::string_view kLaunchers[] = {"mpirun", "mpiexec", "orte", "prte", "slurmstepd"};
  const auto name = ReadStart(StrCat("/proc/", ::getppid(), "/comm"), 32);
  return name.ok() && std::ranges::any_of(kLaunchers, [&](std::string_view launcher) {
           return name->starts_with(launcher);
         });
}

std::unique_ptr<LauncherWatch> LauncherWatch::Start(const std::string& host, int rank) {
  const pid_t launcher = ::getppid();
  int ends[2];
  if (launcher == 0 || ::pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  const auto stop = std::make_shared<FileDescriptor>(ends[0]);
  std::unique_ptr<LauncherWatch> watch(new LauncherWatch);
  watch->stop_ = FileDescriptor(ends[1]);
  const auto process =
      std::make_shared<FileDescriptor>(static_cast<int>(::syscall(SYS_pidfd_open, launcher, 0)));
  const std::string message = Printable(StrCat("gaccd on ", host, ": rank ", rank,
                                               ": its launcher has ended, process ", launcher)) +
                              "\n";
  auto thread = StartThread("the watch on the launcher", [launcher, process, stop, message] {
    Watch(launcher, *process, *stop, message);
  });
  if (!thread.ok()) return nullptr;
  watch->thread_ = *std::move(thread);
  return watch;
}

LauncherWatch::~LauncherWatch() {
  (void)stop_.Close();
  if (thread_.joinable()) thread_.join();
}

}  // namespace gaccd
