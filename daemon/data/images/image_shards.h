// Images in tar files ("shards"), as written by WebDataset: members with the same key are one
// sample; the key is the path up to the first dot of the file name. 000/17.jpg and 000/17.cls: the
// image and its label as text. Members with other extensions are ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/data/images/image_arrays.h"
#include "daemon/data/images/image_folder.h"
#include "daemon/data/mapped_file.h"

namespace gaccd {

// Whether the path of a source denotes tar files: a file, or a pattern with a '*'.
[[nodiscard]] bool IsShards(const std::string& path);

// A sample whose label is missing or not a class.
struct DamagedLabel {
  std::int64_t sample = 0;
  Status why;
};

// The images of one tar file, in the order in which their keys first appear, with offsets in `tar`;
// samples in `damaged` have label 0. kData, with `name`: a tar file that is compressed,
// truncated or damaged; two images or two .cls with the same key; a .cls without an image; an image
// or .cls with more dots in its name, as 17.left.jpg, whose key has no image; links, sparse files;
// no image; the error of `tick`, for every 64 MiB (Ticks). Images have the extension .jpg, .jpeg,
// .png or .webp, in upper or lower case.
Result<std::vector<ImageFile>> IndexShard(const std::string& name, std::span<const std::byte> tar,
                                          std::int64_t classes, std::vector<DamagedLabel>& damaged,
                                          const TickFunction& tick);

struct Shard {
  std::string path;
  std::shared_ptr<const MappedFile> file;
};

struct ImageShards {
  std::vector<Shard> shards;
  std::vector<ImageArray> arrays;  // instead of tar files
  std::vector<ImageFile> images;   // shard by shard
  std::vector<DamagedLabel> damaged;
};

// Maps and indexes the files. Errors: those of MappedFile::Open() and IndexShard().
Result<ImageShards> OpenShards(const std::vector<std::string>& paths, std::int64_t classes,
                               const TickFunction& tick);

}  // namespace gaccd
