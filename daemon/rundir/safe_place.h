// Where a run folder may be. In a folder that everybody may write in and that is not sticky,
// any user can put a link or a folder in the place of ours, and a run would then write
// to that place.
#pragma once

#include <string>

#include "collectives/base/result.h"

namespace gaccd {

// Success for a folder whose whole path is safe, and for one that is not there yet, as far as its
// path is. Each folder and link on the way to `path`, also on the way that a link leads:
//
//   a link made by somebody other than this user or root               kConfig
//   writable by everybody, not sticky, owned by somebody other         kConfig
//   the same, but owned by root (a scratch folder made carelessly)     passed: the site's choice
//   the same, but owned by this user                                   passed
//   writable by a group                                                passed: groups share runs
//
// and the folder itself, when it is owned by neither this user nor root    kConfig
//
// The message names folder, owner and mode. kIo: a folder cannot be looked at.
[[nodiscard]] Status CheckSafePlace(const std::string& path);

// The same for a run folder and the folders in it that a run writes in: attempts, ckpt.
[[nodiscard]] Status CheckSafeRunFolder(const std::string& run_dir);

// What passes and is still worth a line: the first folder on the way to `run_dir`, itself included,
// in which others than this user, root and a group may replace what is there. Empty: there is none.
// A folder of user 65534 does not count: so the owners of another user namespace are shown.
[[nodiscard]] std::string RunFolderWarning(const std::string& run_dir);

}  // namespace gaccd
