// What ranks of one node see of each other, across processes.
#include "collectives/comm/nccl_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

namespace gaccd {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr milliseconds kLong{60'000};
constexpr Entry kThird{3, Operation::kAllReduce};
constexpr Entry kFourth{4, Operation::kAllReduce};

// Rank 1: a process that has entered all-reduce #3, and maybe given up, and then does nothing.
class RankOne {
 public:
  explicit RankOne(bool gives_up) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    pid_ = fork();
    if (pid_ == 0) {
      NcclBoard board;
      board.PublishEntry(kThird);
      if (gives_up) board.PublishFailure();
      const int fd = board.fd();
      (void)!write(ends[1], &fd, sizeof(fd));
      for (;;) pause();
    }
    EXPECT_EQ(read(ends[0], &fd_, sizeof(fd_)), static_cast<ssize_t>(sizeof(fd_)));
    close(ends[0]);
    close(ends[1]);
  }
  ~RankOne() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void WatchedBy(NcclBoard* board) const {
    board->Watch(1, {pid_, ThisProcess().pid_namespace}, fd_);
  }

 private:
  pid_t pid_ = 0;
  int fd_ = -1;
};

TEST(NcclBoard, RankThatDidNotEnter) {
  const RankOne other(/*gives_up=*/false);
  NcclBoard board;
  other.WatchedBy(&board);
  ASSERT_EQ(board.known(), 1);
  EXPECT_THAT(board.FindMissing(kThird, kLong, kLong), IsEmpty());
  EXPECT_THAT(board.FindMissing(kFourth, kLong, kLong),
              ElementsAre(MissingRank{1, Absence::kBehind}));
  EXPECT_THAT(board.FindMissing(kFourth, kLong - milliseconds(1), kLong), IsEmpty()) << "not late";
  EXPECT_THAT(board.GaveUp(), IsEmpty());
}

TEST(NcclBoard, RankWithoutHeartbeat) {
  const RankOne other(/*gives_up=*/false);
  NcclBoard board;
  other.WatchedBy(&board);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_THAT(board.FindMissing(kThird, kLong, milliseconds(5)),
              ElementsAre(MissingRank{1, Absence::kStalled}));
}

TEST(NcclBoard, RankThatGaveUp) {
  const RankOne other(/*gives_up=*/true);
  NcclBoard board;
  other.WatchedBy(&board);
  EXPECT_THAT(board.GaveUp(), ElementsAre(1));
  EXPECT_THAT(board.FindMissing(kFourth, kLong, kLong),
              ElementsAre(MissingRank{1, Absence::kGaveUp}));
}

TEST(NcclBoard, InvisibleRankIsUnknown) {
  NcclBoard board;
  board.Watch(1, {getpid(), ThisProcess().pid_namespace + 1}, board.fd());
  board.Watch(2, ThisProcess(), 9'999);
  board.Watch(3, ThisProcess(), -1);
  EXPECT_EQ(board.known(), 0);
  EXPECT_THAT(board.FindMissing(kThird, kLong, kLong), IsEmpty());
}

}  // namespace
}  // namespace gaccd
