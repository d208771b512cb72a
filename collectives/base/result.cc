#include "collectives/base/result.h"

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

Status::Status(ErrorKind kind, std::string message)
    : error_(std::make_shared<const Error>(Error{kind, std::move(message)})) {}

Status Status::WithContext(std::string_view what) && {
  if (ok()) return std::move(*this);
  return {kind(), StrCat(what, ": ", message())};
}

}  // namespace gaccd
