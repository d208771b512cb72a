// Image folders: one subfolder per class.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"

namespace gaccd {

// The names of the folders in `path`, sorted bytewise: label i is the i-th. Files and names that
// begin with a dot are skipped. kIo.
Result<std::vector<std::string>> ListClassFolders(const std::string& path);

struct ImageFile {
  std::string path;  // for members of a tar file: path within it; in an array: empty
  std::int32_t label = 0;
  std::int32_t shard = -1;  // index of the tar file or array; -1: a plain file
  std::int64_t offset = 0;  // in the tar file; in an array: index of the image
  std::int64_t bytes = 0;
};

// All files below the folders of these classes, class by class, sorted bytewise by path: the same
// on every machine. Symbolic links are followed; names that begin with a dot are skipped. Errors:
// kIo; kData for a class without files, and for two files whose paths differ only in the extension;
// those of `tick`, which is called after every class.
Result<std::vector<ImageFile>> ListImages(const std::string& path,
                                          const std::vector<std::string>& classes,
                                          const TickFunction& tick);

}  // namespace gaccd
