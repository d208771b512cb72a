// A file that a user names to be written, such as --out=FILE. Thread-safe.
#pragma once

#include <string>

#include "collectives/base/result.h"

namespace gaccd {

// The name to write under so that `path` is what the user means: a symbolic link is followed, also
// one to a file that is not there yet, so the link stays. kIo, with `path` as it was given:
//   a folder, FIFO, socket, device or open file of a process (/dev/stdout)
//   a link made by somebody other than this user or root
//   a file that this user may not write
Result<std::string> OutputTarget(const std::string& path);

// The same, and that a file can be made in its folder: one is made and removed. For before a long
// computation whose result goes there.
Status CheckOutputFile(const std::string& path);

}  // namespace gaccd
