// Where a run folder may be. In a folder that everybody may write in and that is not sticky,
// anybody can put a link or a folder of his own in the place of ours, and a run would then write
// where he wants it to.
#pragma once

#include <string>

#include "collectives/base/result.h"

namespace gaccd {

// Success for a folder whose whole path is safe. Each folder on the way to `path`, and it itself:
//
//   a link made by somebody other than this user or root               kConfig
//   writable by everybody, not sticky, owned by somebody other         kConfig
//   the same, but owned by root (a scratch folder made carelessly)     passed: the site's choice
//   the same, but owned by this user                                   passed
//   writable by a group                                                passed: groups share runs
//
// The message names folder, owner and mode. kIo: a folder cannot be looked at.
[[nodiscard]] Status CheckSafePlace(const std::string& path);

}  // namespace gaccd
