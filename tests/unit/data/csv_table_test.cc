#include "tests/unit/base/status_matchers.h"
#include "tests/unit/data/dataset_util.h"
#include "tests/unit/data/file_util.h"

namespace gaccd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CsvTest : public testing::Test {
 protected:
  CsvSpec Source(std::string_view text, std::int64_t targets = 1, std::int64_t classes = 0) {
    return {folder_.Write("table.csv", text), targets, classes};
  }
  std::string Error(std::string_view text, std::int64_t targets = 1, std::int64_t classes = 0) {
    return Refused(ErrorKind::kData, Source(text, targets, classes));
  }
  TempFolder folder_;
};

TEST_F(CsvTest, ReadsFeaturesAndVectors) {
  const auto dataset = Opened(Source("1,2.5,-3,4e-1\n5, 6 ,7,8\n", 2), {.scale = 2});
  EXPECT_EQ(dataset->size(), 2);
  const Batch batch = Gather(*dataset, {1, 0});
  EXPECT_THAT(batch.features, ElementsAre(10.F, 12.F, 2.F, 5.F));
  EXPECT_THAT(batch.targets, ElementsAre(7.F, 8.F, -3.F, 0.4F));
}

TEST_F(CsvTest, ReadsLabelsBehindAHeadingAsTablesAreSaved) {
  const auto dataset = Opened(Source("\xEF\xBB\xBFheight,\"kind\"\r\n1.5,2\r\n\r\n2.5,0", 1, 3));
  const Batch batch = Gather(*dataset, {0, 1});
  EXPECT_THAT(batch.features, ElementsAre(1.5F, 2.5F));
  EXPECT_THAT(batch.labels, ElementsAre(2, 0));
}

TEST_F(CsvTest, RefusesWhatIsNoTable) {
  EXPECT_THAT(Error("1,2\n3,x\n"),
              HasSubstr("table.csv:2: column 2: expected a number, found 'x'"));
  EXPECT_THAT(Error("h,y\n1,2\n,4\n"), HasSubstr(":3: column 1: expected a number, found ''"));
  EXPECT_THAT(Error("1,2\n3,4,5\n"), HasSubstr(":2: expected 2 columns, found 3"));
  EXPECT_THAT(Error("1,2\n3\n"), HasSubstr(":2: expected 2 columns, found 1"));
  EXPECT_THAT(Error("1\n2\n"), HasSubstr("more columns than the 1 of the targets, found 1"));
  EXPECT_THAT(Error("a,b\n"), HasSubstr("found 0"));
  EXPECT_THAT(Error("1,1e99\n"), HasSubstr("found '1e99'"));
}

TEST_F(CsvTest, LabelsAreWholeAndOfTheirClasses) {
  EXPECT_THAT(Error("1,2\n3,4.5\n", 1, 9), HasSubstr("expected a whole number, found '4.5'"));
  EXPECT_THAT(Error("1,2\n3,9\n", 1, 9), HasSubstr("expected labels in [0, 9), found 9"));
  EXPECT_THAT(Refused(ErrorKind::kConfig, Source("1,2,3\n", 2, 9)), HasSubstr("targets 2"));
}

// As a record of any other format: stopped at, or replaced.
TEST_F(CsvTest, ValuesThatAreNotFiniteAreBadRecords) {
  const CsvSpec source = Source("1,2\nnan,3\n5,6\n");
  EXPECT_THAT(Refused(ErrorKind::kData, source), HasSubstr("sample 1, column 0"));
  const auto skipped = OpenDataset(source, {}, {.policy = OnBadRecord::kSkip, .quota = 1});
  ASSERT_TRUE(skipped.ok()) << skipped.status().message();
  EXPECT_EQ((*skipped)->bad_records().size(), 1U);
}

}  // namespace
}  // namespace gaccd
