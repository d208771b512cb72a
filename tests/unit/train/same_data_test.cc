#include "daemon/train/same_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/comm/threads.h"

namespace gaccd {
namespace {

using ::testing::HasSubstr;

SyntheticSource Usual() { return {.samples = 230, .features = 10, .outputs = 2, .seed = 3}; }

// Rank 2 of 3 has `other`.
Status Compare(const SyntheticSource& other, const SyntheticSource& other_eval) {
  return RunThreadRanks(3, {}, [&](Communicator& comm) -> Status {
    const bool odd = comm.rank() == 2;
    GACCD_ASSIGN_OR_RETURN(const auto train, OpenDataset({odd ? other : Usual()}, {}));
    GACCD_ASSIGN_OR_RETURN(const auto eval, OpenDataset({odd ? other_eval : Usual()}, {}));
    const Status status = CheckSameData(comm, *train, eval.get());
    if (!status.ok()) return status;
    return CheckSameData(comm, *train, nullptr);
  });
}

TEST(SameDataTest, EqualCopiesAreFine) {
  const Status status = Compare(Usual(), Usual());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(SameDataTest, ACopyOfAnotherSizeIsNamedWithItsRank) {
  SyntheticSource stale = Usual();
  stale.samples = 229;
  const Status status = Compare(stale, Usual());
  EXPECT_EQ(status.kind(), ErrorKind::kConfig);
  EXPECT_THAT(status.message(), HasSubstr("training data must be the same on all ranks"));
  EXPECT_THAT(status.message(), HasSubstr("have '230 samples"));
  EXPECT_THAT(status.message(), HasSubstr("rank 2 on "));
  EXPECT_THAT(status.message(), HasSubstr("has '229 samples"));
}

TEST(SameDataTest, ACopyWithOtherContentIsNamed) {
  SyntheticSource other = Usual();
  other.seed = 4;
  EXPECT_THAT(Compare(other, Usual()).message(), HasSubstr("training data must be the same"));
  EXPECT_THAT(Compare(Usual(), other).message(), HasSubstr("evaluation data must be the same"));
}

TEST(SameDataTest, ASetOfOneSample) {
  SyntheticSource one = Usual();
  one.samples = 1;
  EXPECT_TRUE(Compare(Usual(), Usual()).ok());
  EXPECT_THAT(Compare(one, Usual()).message(), HasSubstr("has '1 samples"));
}

}  // namespace
}  // namespace gaccd
