#include "collectives/base/result.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <memory>
#include <stdexcept>

#include "collectives/base/strings.h"
#include "tests/support/status_matchers.h"

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

TEST(Status, PrependsContextAndKeepsKind) {
  const Status status = Status(ErrorKind::kIo, "no such file").WithContext("train.idx");
  EXPECT_THAT(status, HasMessage("train.idx: no such file"));
  EXPECT_THAT(status, HasKind(ErrorKind::kIo));
}

TEST(Status, KindsEqualExitCodesAndHaveNames) {
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

TEST(Result, HoldsValueOrError) {
  EXPECT_EQ(*Half(8), 4);
  EXPECT_TRUE(Half(8).status().ok());
  const Result<int> wrong = Half(7);
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong, HasMessage("expected an even number, found 7"));
}

TEST(Result, ReturnIfErrorReturnsFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_THAT(Quarter(7), HasMessage("expected an even number, found 7"));
  EXPECT_THAT(Quarter(6), HasMessage("expected an even number, found 3"));
  EXPECT_TRUE(OnlyEven(2).ok());
  EXPECT_FALSE(OnlyEven(3).ok());
}

TEST(Result, HoldsMoveOnlyTypes) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

// Counts how many of it live.
struct Counted {
  explicit Counted(int* count) : living(count) { ++*living; }
  Counted(const Counted& other) : living(other.living) { ++*living; }
  Counted& operator=(const Counted&) = default;
  ~Counted() { --*living; }
  int* living;
};

TEST(Result, CopiesMovesAndDestroysValueOnce) {
  int living = 0;
  {
    Result<Counted> first = Counted(&living);
    EXPECT_EQ(living, 1);
    Result<Counted> copy = first;
    EXPECT_EQ(living, 2);
    Result<Counted> moved = std::move(copy);
    EXPECT_EQ(living, 3);  // a value that was moved from ends with its result
    moved = Status(ErrorKind::kIo, "disk full");
    EXPECT_EQ(living, 2);
    EXPECT_THAT(moved, HasMessage("disk full"));
    moved = first;
    EXPECT_EQ(living, 3);
    EXPECT_TRUE(moved.ok());
  }
  EXPECT_EQ(living, 0);
}

TEST(Result, ErrorsOutliveTheirSource) {
  Status kept;
  {
    const Result<std::string> wrong = Status(ErrorKind::kData, "row 3");
    kept = wrong.status();
    const Result<std::string> copy = wrong;
    EXPECT_THAT(copy, IsError(ErrorKind::kData, "row 3"));
  }
  EXPECT_THAT(kept, IsError(ErrorKind::kData, "row 3"));
  const Status moved = std::move(kept);
  EXPECT_THAT(moved, HasMessage("row 3"));
}

TEST(Result, SuccessWithoutValueIsAnError) {
  const Result<int> nothing = Status::Ok();
  EXPECT_THAT(nothing, IsError(ErrorKind::kInternal, "found neither"));
}

TEST(StatusMatchersTest, AcceptsSuccess) {
  const Status good;
  const Result<int> value = 1;
  const Result<int> bad = Status(ErrorKind::kData, "expected 3 rows, found 2");
  EXPECT_THAT(good, testing::Not(IsError(ErrorKind::kData, "")));
  EXPECT_THAT(value, testing::Not(IsError(ErrorKind::kData, "")));
  EXPECT_THAT(bad, IsError(ErrorKind::kData, "3 rows"));
  EXPECT_THAT(bad, testing::Not(IsError(ErrorKind::kData, "4 rows")));
  EXPECT_THAT(bad.status(), testing::Not(IsError(ErrorKind::kIo, "3 rows")));
}

TEST(StatusMatchers, AcceptsSuccess) {
  const Status failed(ErrorKind::kData, "row 3");
  EXPECT_THAT(failed, HasKind(ErrorKind::kData));
  EXPECT_THAT(failed, HasMessage("row 3"));
  EXPECT_THAT(failed, testing::Not(HasKind(ErrorKind::kIo)));
  EXPECT_THAT(failed, testing::Not(HasMessage("row")));
  EXPECT_THAT(Status::Ok(), testing::Not(HasKind(ErrorKind::kData)));
  EXPECT_THAT(Result<int>(3), testing::Not(HasMessage("")));
}

TEST(StatusMatchers, RequiresEveryPartOfMessage) {
  const Status failed(ErrorKind::kData, "expected 3, found 2");
  EXPECT_THAT(failed, IsError(ErrorKind::kData));
  EXPECT_THAT(failed, IsError(ErrorKind::kData, "3", std::string("found 2"), Not(HasSubstr("4"))));
  EXPECT_THAT(failed, Not(IsError(ErrorKind::kIo, "3", "found 2")));
  EXPECT_THAT(failed, Not(IsError(ErrorKind::kData, "4", "found 2")));
  EXPECT_THAT(failed, Not(IsError(ErrorKind::kData, "3", "found 1")));
  EXPECT_THAT(failed, Not(IsError(ErrorKind::kData, "3", Not(HasSubstr("2")))));
  EXPECT_THAT(Status::Ok(), Not(IsError(ErrorKind::kData, "")));
}

TEST(ResultTest, ReadWithoutValueAborts) {
  const auto read = [](const auto& access) {
    prctl(PR_SET_DUMPABLE, 0);
    Result<std::string> failed = Status(ErrorKind::kIo, "no such file");
    (void)access(failed);
  };
  const auto dies = testing::KilledBySignal(SIGABRT);
  constexpr const char* kText = "without a check for its error \\(io\\): no such file";
  EXPECT_EXIT(read([](auto& failed) { return failed->size(); }), dies, kText);
  EXPECT_EXIT(read([](auto& failed) { return (*failed).size(); }), dies, kText);
  EXPECT_EXIT(read([](auto& failed) { return std::move(failed).value().size(); }), dies, kText);
  EXPECT_EXIT(read([](const auto& failed) { return *failed; }), dies, kText);
}

TEST(StatusMatchers, ErrorFailsTest) {
  const Result<int> failed = Status(ErrorKind::kData, "row 3");
  EXPECT_THAT(failed, Not(IsOk()));
  EXPECT_THAT(Result<int>(3), IsOk());
  EXPECT_EQ(ValueOrThrow(Result<int>(3)), 3);
  EXPECT_THROW((void)ValueOrThrow(failed), std::runtime_error);
  EXPECT_NONFATAL_FAILURE(ExpectOk(Status(ErrorKind::kData, "row 3")), "row 3");
  ExpectOk(Status::Ok());
}

}  // namespace
}  // namespace gaccd
