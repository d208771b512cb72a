// The error of all readers of checkpoint files.
#pragma once

#include <string>
#include <utility>

#include "collectives/base/result.h"

namespace gaccd {

// kData: the content of a checkpoint is invalid or was changed.
inline Status BadData(std::string what) { return {ErrorKind::kData, std::move(what)}; }

}  // namespace gaccd
