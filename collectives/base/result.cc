#include "collectives/base/result.h"

#include <cstdio>
#include <cstdlib>

#include "collectives/base/strings.h"

namespace gaccd {

std::string_view ErrorKindName(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "usage";
    case ErrorKind::kData:
      return "data";
    case ErrorKind::kUnavailable:
      return "unavailable";
    case ErrorKind::kInternal:
      return "internal";
    case ErrorKind::kOs:
      return "os";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kTempFail:
      return "tempfail";
    case ErrorKind::kConfig:
      return "config";
    case ErrorKind::kNoRequeue:
      return "norequeue";
    case ErrorKind::kInterrupted:
      return "interrupted";
  }
  return "unknown";
}

Status::Status(Error error) : error_(new Error(std::move(error))) {}
Status::Status(ErrorKind kind, std::string message) : Status(Error{kind, std::move(message)}) {}

Status Status::LacksMemory(std::string message) {
  return Status(Error{ErrorKind::kConfig, std::move(message), /*lacks_memory=*/true});
}

const Status::Error* Status::Copy(const Error& error) { return new Error(error); }
void Status::Delete(const Error* error) { delete error; }

Status NoValue() {
  return {ErrorKind::kInternal, "a result: expected a value or an error, found neither"};
}

void AbortWithoutValue(const Status& status) {
  std::fprintf(stderr, "gaccd: a result was read without a check for its error (%s): %s\n",
               std::string(ErrorKindName(status.kind())).c_str(), status.message().c_str());
  std::abort();
}

Status Status::WithContext(std::string_view what) const {
  if (ok()) return {};
  return Status(Error{kind(), StrCat(what, ": ", message()), lacks_memory()});
}

}  // namespace gaccd
