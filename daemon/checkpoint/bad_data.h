// The errors of all readers of checkpoint files.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "collectives/base/result.h"

namespace gaccd {

// kData: the content of a checkpoint is invalid or was changed.
inline Status BadData(std::string what) { return {ErrorKind::kData, std::move(what)}; }

// kConfig: intact, but not readable by this version. Not kData, after which an older checkpoint
// would be used, and the newer one removed.
Status OtherVersion(std::string_view written_by, std::string_view what);

}  // namespace gaccd
