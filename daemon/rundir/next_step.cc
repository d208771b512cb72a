#include "daemon/rundir/next_step.h"

#include "collectives/base/result.h"

namespace gaccd {

std::string_view Name(NextStep next) {
  switch (next) {
    case NextStep::kDone:
      return "done";
    case NextStep::kRequeue:
      return "requeue";
    case NextStep::kNoRequeue:
      return "norequeue";
    case NextStep::kFail:
      return "fail";
  }
  return "?";
}

NextStep SelectNextStep(int code) {
  if (code == 0) return NextStep::kDone;
  switch (static_cast<ErrorKind>(code)) {
    case ErrorKind::kTempFail:
    case ErrorKind::kUnavailable:
    case ErrorKind::kOs:
      return NextStep::kRequeue;
    case ErrorKind::kNoRequeue:
    case ErrorKind::kInterrupted:
      return NextStep::kNoRequeue;
    default:
      return IsSignalExit(code) ? NextStep::kRequeue : NextStep::kFail;
  }
}

}  // namespace gaccd
