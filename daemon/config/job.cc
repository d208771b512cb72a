#include "daemon/config/job.h"

namespace gaccd {

std::string_view Name(LastCycle policy) {
  switch (policy) {
    case LastCycle::kUpdate:
      return "update";
    case LastCycle::kCarry:
      return "carry";
    case LastCycle::kDrop:
      return "drop";
  }
  return "?";
}

}  // namespace gaccd
