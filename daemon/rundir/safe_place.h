// Checks the location of a run folder. In a folder that everybody may write in and that is not
// sticky, any user can replace our folder by a link or another folder, and a run would write there.
#pragma once

#include <string>

#include "collectives/base/result.h"

namespace gaccd {

// Ok for a folder whose whole path is safe, and for one that does not exist yet, if the existing
// part of its path is safe. Each folder and link on the way to `path`, including targets of links:
//
//   a link created by a user other than this one or root               kConfig
//   writable by everybody, not sticky, owned by another user           kConfig
//   the same, but owned by root (for example a scratch folder)         ok: the site's choice
//   the same, but owned by this user                                   ok
//   writable by a group                                                ok: groups share runs
//
// and the folder itself, if it is owned by neither this user nor root      kConfig
//
// The message contains folder, owner and mode. kIo: a folder cannot be inspected.
[[nodiscard]] Status CheckSafePlace(const std::string& path);

// The same for a run folder and its subfolders that a run writes in: attempts, ckpt.
[[nodiscard]] Status CheckSafeRunFolder(const std::string& run_dir);

// A warning for a location that is accepted: the first folder on the way to `run_dir`, including
// itself, in which users other than this one, root and a group may replace entries. Empty: none. A
// folder of user 65534 is ignored, as owners of other user namespaces appear like this.
[[nodiscard]] std::string RunFolderWarning(const std::string& run_dir);

}  // namespace gaccd
