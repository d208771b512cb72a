// Matchers for Status and Result<T>. Unlike status.message(), they may be asked of a success.
//   EXPECT_THAT(Load(path), IsError(ErrorKind::kData, "expected 3 rows"));
//   EXPECT_THAT(Load(path), HasMessage(HasSubstr("expected 3 rows")));
#pragma once

#include <gmock/gmock.h>

#include "collectives/base/result.h"

namespace gaccd {

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>  // Result and what else has a status()
const Status& StatusOf(const T& result) {
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

MATCHER_P2(IsError, kind, part,
           std::string(negation ? "is not" : "is") + " an error of kind " +
               std::string(ErrorKindName(kind)) + " with '" + part + "' in it") {
  const Status& status = StatusOf(arg);
  return ExplainError(status, result_listener) && status.kind() == kind &&
         status.message().find(part) != std::string::npos;
}

MATCHER_P(HasKind, kind,
          std::string(negation ? "is no" : "is an") + " error of kind " +
              std::string(ErrorKindName(kind))) {
  const Status& status = StatusOf(arg);
  return ExplainError(status, result_listener) && status.kind() == kind;
}

MATCHER_P(HasMessage, inner,
          std::string(negation ? "is no" : "is an") + " error whose message " +
              ::testing::DescribeMatcher<std::string>(inner)) {
  const Status& status = StatusOf(arg);
  return ExplainError(status, result_listener) &&
         ::testing::ExplainMatchResult(inner, status.message(), result_listener);
}

}  // namespace gaccd
