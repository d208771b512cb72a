#include "collectives/bootstrap/launcher_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gaccd {
namespace {

constexpr int kLives = 3;
constexpr useconds_t kMicroseconds = 500'000;

// In the rank: its process id goes to `ready` when it watches.
[[noreturn]] void Rank(int ready, bool watches) {
  auto watch = LauncherWatch::Start("n1", 2);
  if (!watches) watch.reset();
  const pid_t self = ::getpid();
  (void)!::write(ready, &self, sizeof(self));
  ::usleep(watches ? 60'000'000 : kMicroseconds);
  ::_exit(kLives);
}

// The wait status of a rank whose launcher was killed.
int StatusAfterLauncherIsKilled(bool watches) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // the rank is then a child of this process
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    if (::fork() == 0) Rank(ends[1], watches);
    while (true) ::pause();
  }
  pid_t rank = 0;
  EXPECT_EQ(::read(ends[0], &rank, sizeof(rank)), ssize_t{sizeof(rank)});
  EXPECT_EQ(::kill(launcher, SIGKILL), 0);
  EXPECT_EQ(::waitpid(launcher, nullptr, 0), launcher);
  int status = 0;
  EXPECT_EQ(::waitpid(rank, &status, 0), rank);
  ::close(ends[0]);
  ::close(ends[1]);
  return status;
}

TEST(LauncherWatchTest, EndsTheProcessWhenItsLauncherIsKilled) {
  const int status = StatusAfterLauncherIsKilled(true);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 69);
}

TEST(LauncherWatchTest, IsEndedByItsDestructor) {
  const int status = StatusAfterLauncherIsKilled(false);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kLives);
}

}  // namespace
}  // namespace gaccd
