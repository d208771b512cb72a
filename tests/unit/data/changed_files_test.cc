// Files that are written, cut or replaced while a data set reads from them.
#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/data/dataset_util.h"

namespace gaccd {
namespace {

class ChangedFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<float> features(12, 0.5F);
    const std::vector<float> targets(6, 1.0F);
    features_ = folder_.Write("features", Npy("(6, 2)", features));
    targets_ = folder_.Write("targets", Npy("(6, 1)", targets));
    for (const std::string& path : {features_, targets_}) SetTime(path, 1'000'000'000);
  }

  static std::string Npy(const std::string& shape, const std::vector<float>& values) {
    return NpyHeader(NpyDictionary("<f4", shape)) + Raw(std::span<const float>(values));
  }

  // The time of the last change.
  static void SetTime(const std::string& path, time_t seconds, long nanoseconds = 5) {
    const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                               {.tv_sec = seconds, .tv_nsec = nanoseconds}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  // The message of the kData error.
  static std::string Change(const Dataset& dataset) {
    const Status status = dataset.CheckUnchanged();
    if (status.ok()) return "unchanged";
    EXPECT_THAT(status, HasKind(ErrorKind::kData));
    return status.message();
  }

  [[nodiscard]] NpySpec Source() const { return {.features = features_, .targets = targets_}; }

  TempFolder folder_;
  std::string features_;
  std::string targets_;
};

TEST_F(ChangedFilesTest, ReportsNoChange) {
  EXPECT_EQ(Change(*Opened(Source())), "unchanged");
  EXPECT_EQ(Change(*Opened(SyntheticSpec{.samples = 3})), "unchanged");
}

TEST_F(ChangedFilesTest, DetectsOtherSize) {
  const auto dataset = Opened(Source());
  std::ofstream(targets_, std::ios::app) << "more";
  SetTime(targets_, 1'000'000'000);
  EXPECT_THAT(Change(*dataset),
              AllOf(HasSubstr(targets_ + ": was changed"),
                    HasSubstr("expected 152 bytes, written at 2001-09-09T01:46:40.000000005Z"),
                    HasSubstr("found 156 bytes")));
  std::filesystem::resize_file(targets_, 3);
  EXPECT_THAT(Change(*dataset), HasSubstr("found 3 bytes"));
}

TEST_F(ChangedFilesTest, DetectsWriteInPlace) {
  const auto dataset = Opened(Source());
  SetTime(features_, 1'000'000'000, 6);
  EXPECT_THAT(Change(*dataset), AllOf(HasSubstr(features_), HasSubstr("40.000000005Z, found 176"),
                                      HasSubstr("40.000000006Z")));
}

TEST_F(ChangedFilesTest, DetectsReplacedFile) {
  const auto dataset = Opened(Source());
  const std::string copy = folder_.Path("copy");
  std::filesystem::copy_file(features_, copy);
  SetTime(copy, 1'000'000'000);
  std::filesystem::rename(copy, features_);
  EXPECT_THAT(Change(*dataset), AllOf(HasSubstr(features_ + ": was replaced while in use"),
                                      HasSubstr("expected inode "), HasSubstr(", found ")));
}

// What is mapped stays as it is.
TEST_F(ChangedFilesTest, RemovedFileCountsAsUnchanged) {
  const auto dataset = Opened(Source());
  std::filesystem::remove(features_);
  EXPECT_EQ(Change(*dataset), "unchanged");
  EXPECT_EQ(Gather(*dataset, {5}).features[1], 0.5F);
}

TEST_F(ChangedFilesTest, CopiedFilesMayChange) {
  const IdxSpec source{
      .images = folder_.Write("images.gz", Gzip(IdxHeader(8, {2, 1, 1}) + Counting(2))),
      .labels = folder_.Write("labels", IdxHeader(8, {2}) + Counting(2)),
      .classes = 10};
  const auto dataset = Opened(source);
  for (const std::string& path : {source.images, source.labels}) std::ofstream(path) << "other";
  EXPECT_EQ(Change(*dataset), "unchanged");
}

TEST_F(ChangedFilesTest, DetectsChangeDespiteDamagedRecords) {
  std::vector<float> features(12, 0.5F);
  features[3] = std::numeric_limits<float>::quiet_NaN();
  (void)folder_.Write("features", Npy("(6, 2)", features));
  for (const bool leave_out : {false, true}) {
    const auto dataset = ValueOrThrow(OpenDataset(
        Source(), {}, {.policy = OnBadRecord::kSkip, .quota = 1, .leave_out = leave_out}));
    EXPECT_EQ(Change(*dataset), "unchanged");
    SetTime(features_, 2'000'000'000 + (leave_out ? 1 : 0));
    EXPECT_THAT(Change(*dataset), HasSubstr("was changed"));
  }
}

}  // namespace
}  // namespace gaccd
