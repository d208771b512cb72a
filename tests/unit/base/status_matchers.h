// Matchers for Status and Result<T>. Unlike status.message(), they may be asked of a success.
//   EXPECT_THAT(Load(path), IsError(ErrorKind::kData, "expected 3 rows"));
#pragma once

#include <gmock/gmock.h>

#include "collectives/base/result.h"

namespace gaccd {

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}

MATCHER_P2(IsError, kind, part,
           std::string(negation ? "is not" : "is") + " an error of kind " +
               std::string(ErrorKindName(kind)) + " with '" + part + "' in it") {
  const Status& status = StatusOf(arg);
  if (status.ok()) {
    *result_listener << "which is OK";
    return false;
  }
  *result_listener << "which is of kind " << ErrorKindName(status.kind()) << ": "
                   << status.message();
  return status.kind() == kind && status.message().find(part) != std::string::npos;
}

}  // namespace gaccd
