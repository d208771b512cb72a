#include "collectives/liveness/deadline/missing.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace gaccd
