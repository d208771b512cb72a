// Matchers for Status and Result<T>. Unlike status.message(), they may be asked of a success.
//   EXPECT_THAT(Load(path), IsError(ErrorKind::kData, "expected 3", "found 2"));
//   EXPECT_THAT(Load(path), HasMessage(HasSubstr("expected 3 rows")));
//   EXPECT_OK(Save(path)) << "again";
//   const Table table = ValueOrThrow(Load(path));
#pragma once

#include <gmock/gmock.h>

#include <concepts>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/base/result.h"

namespace gaccd {

// What most checks of a message are made of.
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

inline const Status& GetStatus(const Status& status) { return status; }
template <typename T>  // Result and what else has a status()
const Status& GetStatus(const T& result) {
  return result.status();
}

// Whether it is an error; which one goes into the report of a failure.
inline bool ExplainError(const Status& status, ::testing::MatchResultListener* listener) {
  if (status.ok()) {
    *listener << "which is OK";
  } else {
    *listener << "which is of kind " << ErrorKindName(status.kind()) << ": " << status.message();
  }
  return !status.ok();
}

MATCHER_P(HasKind, kind,
          std::string(negation ? "is no" : "is an") + " error of kind " +
              std::string(ErrorKindName(kind))) {
  const Status& status = GetStatus(arg);
  return ExplainError(status, result_listener) && status.kind() == kind;
}

MATCHER_P(HasMessage, inner,
          std::string(negation ? "is no" : "is an") + " error whose message " +
              ::testing::DescribeMatcher<std::string>(inner)) {
  const Status& status = GetStatus(arg);
  return ExplainError(status, result_listener) &&
         ::testing::ExplainMatchResult(inner, status.message(), result_listener);
}

// A text becomes HasSubstr().
inline auto PartOfMessage(std::string_view part) { return ::testing::HasSubstr(std::string(part)); }
template <typename Inner>
requires(!std::convertible_to<Inner, std::string_view>) Inner PartOfMessage(Inner inner) {
  return inner;
}

// An error of that kind with each of the parts, texts or matchers, in its message.
template <typename... Parts>
auto IsError(ErrorKind kind, const Parts&... parts) {
  return ::testing::AllOf(HasKind(kind), HasMessage(PartOfMessage(parts))...);
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  return !ExplainError(GetStatus(arg), result_listener);
}
#define EXPECT_OK(...) EXPECT_THAT((__VA_ARGS__), ::gaccd::IsOk())
#define ASSERT_OK(...) ASSERT_THAT((__VA_ARGS__), ::gaccd::IsOk())

// The same for a long expression: a macro would lose the lines of what is in it.
inline void ExpectOk(const Status& status,
                     std::source_location where = std::source_location::current()) {
  if (!status.ok()) {
    ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line())) << status.message();
  }
}

// An error fails the test, with its message.
template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}

}  // namespace gaccd
