// A folder with a folder of images for each class.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"

namespace gaccd {

// The names of the folders in `path`, sorted by their bytes: the class of number i is the i-th.
// Names that begin with a dot are skipped, files too. kIo.
Result<std::vector<std::string>> ListClassFolders(const std::string& path);

struct ImageFile {
  std::string path;  // in its tar file, if it is in one
  std::int32_t label = 0;
  std::int32_t shard = -1;  // the number of the tar file; -1: a file of its own
  std::int64_t offset = 0;  // in the tar file
  std::int64_t bytes = 0;
};

// The files in the folders of these classes and in folders below them, class by class, sorted by
// the bytes of their paths: the same on every machine. Symbolic links are followed; names that
// begin with a dot are skipped. Errors: kIo; kData for a class without files, and for two files
// that differ only in what follows the last dot of their names; those of `tick`, which is called
// after every class.
Result<std::vector<ImageFile>> ListImages(const std::string& path,
                                          const std::vector<std::string>& classes,
                                          const TickFunction& tick);

}  // namespace gaccd
