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

std::string_view Name(Device device) {
  switch (device) {
    case Device::kAuto:
      return "auto";
    case Device::kCpu:
      return "cpu";
    case Device::kCuda:
      return "cuda";
  }
  return "?";
}

std::string_view Name(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return "f32";
    case Precision::kBF16:
      return "bf16";
  }
  return "?";
}

}  // namespace gaccd
