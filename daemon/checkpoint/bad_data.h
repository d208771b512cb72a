// The error of every reader of this folder.
#pragma once

#include <string>
#include <utility>

#include "collectives/base/result.h"

namespace gaccd {

// What a checkpoint holds cannot be, or is not what was written: kData.
inline Status BadData(std::string what) { return {ErrorKind::kData, std::move(what)}; }

}  // namespace gaccd
