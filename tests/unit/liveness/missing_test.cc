#include "collectives/liveness/deadline/missing.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/status_matchers.h"

namespace gaccd {

namespace {

using std::chrono::milliseconds;

std::vector<std::string> Hosts() { return {"n0", "n0", "n1", "n1"}; }
constexpr Entry kOwn = {17, Operation::kAllReduce};

TEST(EntryTest, PackedFormRoundTrips) {
  for (const Entry entry : {Entry{0, Operation::kNone}, Entry{1, Operation::kSplit},
                            Entry{(std::uint64_t{1} << 56) - 1, Operation::kBarrier}}) {
    EXPECT_EQ(Unpack(Pack(entry)), entry);
  }
}

TEST(MissingErrorTest, NamesRankHostAndReason) {
  const std::vector<MissingRank> missing = {
      {1, Absence::kBehind}, {2, Absence::kEnded}, {3, Absence::kStalled}};
  EXPECT_THAT(
      MissingError(kOwn, milliseconds(3520), milliseconds(5000), missing, Hosts()),
      IsError(ErrorKind::kUnavailable,
              "all-reduce #17 ended after 3.5 s (bound 5 s): rank 1 on n0 did not enter all-reduce "
              "#17; rank 2 on n1 has ended (its process does not exist); rank 3 on n1 entered "
              "all-reduce #17 and stopped in it"));
}

TEST(MissingErrorTest, NoneMissing) {
  EXPECT_THAT(
      MissingError(kOwn, milliseconds(3500), milliseconds(5000), {}, Hosts()),
      HasMessage(
          "all-reduce #17 ended after 3.5 s (bound 5 s): every rank entered it, but it did not "
          "complete"));
}

TEST(MissingErrorTest, CountsManyNames) {
  std::vector<MissingRank> missing;
  missing.reserve(240);
  for (int r = 0; r < 240; ++r) missing.push_back({r, Absence::kSilent});
  const std::vector<std::string> hosts(240, "n7");
  const Status status = MissingError(kOwn, milliseconds(1), milliseconds(5000), missing, hosts);
  EXPECT_THAT(status, HasMessage(testing::HasSubstr("rank 15 on n7")));
  EXPECT_EQ(status.message().find("rank 16 on n7"), std::string::npos);
  EXPECT_THAT(status, HasMessage(testing::HasSubstr("and 224 more")));
}

TEST(OffendersTest, RanksThatGaveUpAreNamedOnlyIfAlone) {
  const std::vector<MissingRank> gave_up = {{2, Absence::kGaveUp}, {0, Absence::kGaveUp}};
  const std::vector<MissingRank> sorted = {{0, Absence::kGaveUp}, {2, Absence::kGaveUp}};
  EXPECT_EQ(Offenders(gave_up), sorted);
  const std::vector<MissingRank> mixed = {
      {2, Absence::kGaveUp}, {3, Absence::kEnded}, {1, Absence::kBehind}, {3, Absence::kSilent}};
  const std::vector<MissingRank> expected = {{1, Absence::kBehind}, {3, Absence::kEnded}};
  EXPECT_EQ(Offenders(mixed), expected);
  EXPECT_TRUE(Offenders({}).empty());
}

TEST(MismatchErrorTest, NamesBothOperations) {
  EXPECT_THAT(
      MismatchError(kOwn, 0, {17, Operation::kBroadcast}, 2, Hosts()),
      IsError(ErrorKind::kInternal,
              "rank 2 on n1 entered broadcast #17 where rank 0 on n0 entered all-reduce #17"));
}

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
