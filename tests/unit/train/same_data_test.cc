#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "collectives/comm/threads.h"
#include "daemon/train/consistency.h"
#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

SyntheticSpec Usual() { return {.samples = 230, .features = 10, .outputs = 2, .seed = 3}; }

// Rank 2 of 3 has `other`.
Status Compare(const SourceSpec& other, const SourceSpec& other_eval,
               const SourceSpec& usual = Usual()) {
  return RunThreadRanks(3, {}, [&](Communicator& comm) -> Status {
    const bool odd = comm.rank() == 2;
    GACCD_ASSIGN_OR_RETURN(const auto train, OpenDataset(odd ? other : usual, {}));
    GACCD_ASSIGN_OR_RETURN(const auto eval, OpenDataset(odd ? other_eval : usual, {}));
    const Status status = CheckSameData(comm, *train, eval.get());
    if (!status.ok()) return status;
    return CheckSameData(comm, *train, nullptr);
  });
}

// Checkpoints of older versions do not say what the data held.
TEST(SameDataTest, UnknownContentHasNotChanged) {
  const DataContent now{.train = 1, .eval = 2};
  EXPECT_EQ(ChangedDataText({}, now), "");
  EXPECT_EQ(ChangedDataText(now, {.train = 1}), "");
  EXPECT_THAT(ChangedDataText({.train = 3}, now), HasSubstr("the training data (content"));
}

TEST(SameDataTest, AcceptsEqualCopies) { EXPECT_OK(Compare(Usual(), Usual())); }

TEST(SameDataTest, NamesRankWithCopyOfAnotherSize) {
  SyntheticSpec stale = Usual();
  stale.samples = 229;
  EXPECT_THAT(Compare(stale, Usual()),
              IsError(ErrorKind::kConfig, "training data must be the same on all ranks",
                      "have '230 samples", "rank 2 on ", "has '229 samples"));
}

TEST(SameDataTest, NamesCopyWithOtherContent) {
  SyntheticSpec other = Usual();
  other.seed = 4;
  EXPECT_THAT(Compare(other, Usual()), HasMessage(HasSubstr("training data must be the same")));
  EXPECT_THAT(Compare(Usual(), other), HasMessage(HasSubstr("evaluation data must be the same")));
}

TEST(SameDataTest, NamesCopyWithOtherTargetsOrLabels) {
  SyntheticSpec noisy = Usual();  // the same features
  noisy.noise = 0.5;
  EXPECT_THAT(Compare(noisy, Usual()), HasMessage(HasSubstr("training data must be the same")));
  const TempFolder folder;
  const auto write = [&](const char* name, const char* type, const char* shape,
                         const std::string& data) {
    return folder.Write(name, NpyHeader(NpyDictionary(type, shape)) + data);
  };
  const std::vector<float> features{0.5F, 1, 2};
  const std::vector<std::int32_t> labels{0, 1, 2};
  const std::vector<std::int32_t> swapped{0, 2, 1};
  const NpySpec usual{
      .features = write("x", "<f4", "(3, 1)", Raw(std::span<const float>(features))),
      .targets = write("y", "<i4", "(3,)", Raw(std::span<const std::int32_t>(labels))),
      .classes = 3};
  NpySpec other = usual;
  other.targets = write("z", "<i4", "(3,)", Raw(std::span<const std::int32_t>(swapped)));
  EXPECT_TRUE(Compare(usual, usual, usual).ok());
  EXPECT_THAT(Compare(other, usual, usual),
              HasMessage(HasSubstr("training data must be the same")));
}

TEST(SameDataTest, HandlesOneSample) {
  SyntheticSpec one = Usual();
  one.samples = 1;
  EXPECT_TRUE(Compare(Usual(), Usual()).ok());
  EXPECT_THAT(Compare(one, Usual()), HasMessage(HasSubstr("has '1 samples")));
}

}  // namespace
}  // namespace gaccd
