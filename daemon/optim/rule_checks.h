// Checks of optimiser settings; kConfig with the name and the value.
#pragma once

#include <cmath>
#include <string_view>

#include "collectives/base/result.h"
#include "collectives/base/strings.h"

namespace gaccd {

// name: for example "sgd momentum".
inline Status CheckNotNegative(std::string_view name, double value) {
  if (value >= 0 && std::isfinite(value)) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("optimizer: ", name, " must be >= 0 and finite, found ", value)};
}

// Checks the value as a float: an epsilon that rounds to 0 would divide 0 by 0.
inline Status CheckEpsilon(std::string_view name, double value) {
  if (static_cast<float>(value) > 0 && std::isfinite(value)) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("optimizer: ", name, " epsilon must be > 0 and finite, found ", value)};
}

}  // namespace gaccd
