// The errors of all readers of checkpoint files.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "collectives/base/result.h"
#include "collectives/base/strings.h"
#include "daemon/config/revision.h"

namespace gaccd {

// kData: the content of a checkpoint is invalid or was changed.
inline Status BadData(std::string what) { return {ErrorKind::kData, std::move(what)}; }

// kConfig: intact, but not readable by this version. Not kData, after which an older checkpoint
// would be used, and the newer one removed.
inline Status OtherVersion(std::string_view written_by, std::string_view what) {
  return {ErrorKind::kConfig,
          StrCat("the checkpoint was written by ", written_by, ", and gaccd ", GaccdVersion(), " ",
                 GaccdRevision(), " cannot read it: use the version that wrote it (", what, ")")};
}

}  // namespace gaccd
