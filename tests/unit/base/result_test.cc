#include "collectives/base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "collectives/base/strings.h"
#include "tests/unit/base/status_matchers.h"

namespace gaccd {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) {
    return Status(ErrorKind::kUsage, StrCat("expected an even number, found ", value));
  }
  return value / 2;
}

Result<int> Quarter(int value) {
  GACCD_ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

Status OnlyEven(int value) {
  GACCD_RETURN_IF_ERROR(Half(value).status());
  return Status::Ok();
}

TEST(Status, SuccessHoldsNothing) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(Status::Ok().WithContext("reading").ok());
}

TEST(Status, ErrorKeepsKindAndMessage) {
  const Status status(ErrorKind::kData, "label 12");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status, HasKind(ErrorKind::kData));
  EXPECT_THAT(status, HasMessage("label 12"));
}

TEST(Status, ContextGoesInFrontAndKeepsTheKind) {
  const Status status = Status(ErrorKind::kIo, "no such file").WithContext("train.idx");
  EXPECT_THAT(status, HasMessage("train.idx: no such file"));
  EXPECT_THAT(status, HasKind(ErrorKind::kIo));
}

TEST(Status, KindsAreTheExitCodesAndHaveNames) {
  EXPECT_EQ(static_cast<int>(ErrorKind::kUsage), 64);
  EXPECT_EQ(static_cast<int>(ErrorKind::kConfig), 78);
  EXPECT_EQ(static_cast<int>(ErrorKind::kNoRequeue), 93);
  EXPECT_EQ(static_cast<int>(ErrorKind::kTempFail), 75);
  EXPECT_EQ(static_cast<int>(ErrorKind::kInterrupted), 130);
  EXPECT_EQ(ErrorKindName(ErrorKind::kUsage), "usage");
  EXPECT_EQ(ErrorKindName(ErrorKind::kData), "data");
  EXPECT_EQ(ErrorKindName(ErrorKind::kUnavailable), "unavailable");
  EXPECT_EQ(ErrorKindName(ErrorKind::kInternal), "internal");
  EXPECT_EQ(ErrorKindName(ErrorKind::kOs), "os");
  EXPECT_EQ(ErrorKindName(ErrorKind::kIo), "io");
  EXPECT_EQ(ErrorKindName(ErrorKind::kConfig), "config");
  EXPECT_EQ(ErrorKindName(ErrorKind::kNoRequeue), "norequeue");
}

TEST(Result, ValueOrTheReasonWhyNot) {
  EXPECT_EQ(*Half(8), 4);
  EXPECT_TRUE(Half(8).status().ok());
  const Result<int> wrong = Half(7);
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong, HasMessage("expected an even number, found 7"));
}

TEST(Result, EarlyReturnPassesTheFirstErrorOn) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_THAT(Quarter(7), HasMessage("expected an even number, found 7"));
  EXPECT_THAT(Quarter(6), HasMessage("expected an even number, found 3"));
  EXPECT_TRUE(OnlyEven(2).ok());
  EXPECT_FALSE(OnlyEven(3).ok());
}

TEST(Result, HoldsWhatCanOnlyBeMoved) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

TEST(StatusMatchersTest, MayBeAskedOfASuccess) {
  const Status good;
  const Result<int> value = 1;
  const Result<int> bad = Status(ErrorKind::kData, "expected 3 rows, found 2");
  EXPECT_THAT(good, testing::Not(IsError(ErrorKind::kData, "")));
  EXPECT_THAT(value, testing::Not(IsError(ErrorKind::kData, "")));
  EXPECT_THAT(bad, IsError(ErrorKind::kData, "3 rows"));
  EXPECT_THAT(bad, testing::Not(IsError(ErrorKind::kData, "4 rows")));
  EXPECT_THAT(bad.status(), testing::Not(IsError(ErrorKind::kIo, "3 rows")));
}

TEST(StatusMatchers, MayBeAskedOfASuccess) {
  const Status failed(ErrorKind::kData, "row 3");
  EXPECT_THAT(failed, HasKind(ErrorKind::kData));
  EXPECT_THAT(failed, HasMessage("row 3"));
  EXPECT_THAT(failed, testing::Not(HasKind(ErrorKind::kIo)));
  EXPECT_THAT(failed, testing::Not(HasMessage("row")));
  EXPECT_THAT(Status::Ok(), testing::Not(HasKind(ErrorKind::kData)));
  EXPECT_THAT(Result<int>(3), testing::Not(HasMessage("")));
}

}  // namespace
}  // namespace gaccd
