#include "collectives/liveness/deadline/board.h"

#include <gtest/gtest.h>

#include <array>

namespace gaccd {
namespace {

constexpr Entry kMine = {17, Operation::kAllReduce};

class BoardTest : public ::testing::Test {
 protected:
  BoardTest() {
    for (BoardLine& line : board_) {
      line.entry.store(Pack(kMine));
      line.alive_ms.store(BoardMillis());
    }
  }

  std::vector<MissingRank> Ask(bool late, std::span<const int> ended = {}) {
    return FindMissing(board_, {kMine, 0, ranks_, ended, late, std::chrono::milliseconds(1000)});
  }

  // Line i of the board is rank 2 i + 1.
  std::array<int, 4> ranks_ = {1, 3, 5, 7};
  std::array<BoardLine, 4> board_{};
};

TEST_F(BoardTest, NoRankIsMissingIfAllEntered) { EXPECT_TRUE(Ask(/*late=*/true).empty()); }

TEST_F(BoardTest, RanksInEarlierOperationsAreLateAfterDeadline) {
  board_[2].entry.store(Pack({16, Operation::kNone}));
  EXPECT_TRUE(Ask(/*late=*/false).empty());
  EXPECT_EQ(Ask(/*late=*/true), (std::vector<MissingRank>{{5, Absence::kBehind}}));
}

TEST_F(BoardTest, RanksWithoutHeartbeatAreStalled) {
  board_[1].alive_ms.store(BoardMillis() - 5000);
  EXPECT_EQ(Ask(/*late=*/true), (std::vector<MissingRank>{{3, Absence::kStalled}}));
}

TEST_F(BoardTest, RankThatFinishedIsNotStalled) {
  board_[1].alive_ms.store(BoardMillis() - 5000);
  board_[1].entry.store(Pack({17, Operation::kNone}));
  board_[2].alive_ms.store(BoardMillis() - 5000);
  board_[2].entry.store(Pack({18, Operation::kBarrier}));
  EXPECT_TRUE(Ask(/*late=*/true).empty());
}

TEST_F(BoardTest, DeadRankIsTheOnlyCause) {
  board_[1].entry.store(Pack({3, Operation::kNone}));
  const std::array<int, 1> ended = {3};
  EXPECT_EQ(Ask(/*late=*/false, ended), (std::vector<MissingRank>{{7, Absence::kEnded}}));
  EXPECT_EQ(Ask(/*late=*/true, ended), (std::vector<MissingRank>{{7, Absence::kEnded}}));
}

TEST_F(BoardTest, RankThatGaveUpIsNeitherLateNorStalled) {
  board_[3].alive_ms.store(BoardMillis() - 5000);
  board_[3].given_up.store(static_cast<std::uint64_t>(GivenUp::kLate));
  EXPECT_EQ(Ask(/*late=*/true), (std::vector<MissingRank>{{7, Absence::kGaveUp}}));
  board_[1].entry.store(Pack({16, Operation::kNone}));
  EXPECT_EQ(Ask(/*late=*/true), (std::vector<MissingRank>{{3, Absence::kBehind}}));
}

}  // namespace
}  // namespace gaccd
