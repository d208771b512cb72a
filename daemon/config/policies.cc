#include "daemon/config/policies.h"

namespace gaccd {

std::string_view Name(OnNonfinite policy) {
  switch (policy) {
    case OnNonfinite::kStop:
      return "stop";
    case OnNonfinite::kSkipUpdate:
      return "skip-update";
    case OnNonfinite::kDropMicroBatch:
      return "drop-micro-batch";
  }
  return "?";
}

std::string_view Name(OnBadRecord policy) { return policy == OnBadRecord::kStop ? "stop" : "skip"; }

}  // namespace gaccd
