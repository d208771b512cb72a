// Images in tar files ("shards"), as WebDataset writes them: members of one key are one sample, and
// the key is the name up to the first dot behind its folders. 000/17.jpg and 000/17.cls: the image
// and, as text, the number of its class. Members of other kinds are not looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/data/image_folder.h"
#include "daemon/data/mapped_file.h"

namespace gaccd {

// Whether the path of a source is that of tar files: a file, or names with a '*'.
[[nodiscard]] bool IsShards(const std::string& path);

// A sample whose label is no class of the data, or is missing.
struct DamagedLabel {
  std::int64_t sample = 0;
  Status why;
};

// The images of one tar file, in the order in which their keys come first; damaged ones have the
// label 0. Their places are those in `tar`. kData, with `name`: a tar file that is compressed,
// truncated or damaged; two images or two .cls of one key; a .cls without an image; an image or
// .cls with more dots in its name, as 17.left.jpg, whose key has no image; links, sparse files; no
// image. An image is .jpg, .jpeg, .png or .webp, in any case.
Result<std::vector<ImageFile>> IndexShard(const std::string& name, std::span<const std::byte> tar,
                                          std::int64_t classes, std::vector<DamagedLabel>& damaged);

struct Shard {
  std::string path;
  std::shared_ptr<const MappedFile> file;
};

struct ImageShards {
  std::vector<Shard> shards;
  std::vector<ImageFile> images;  // shard by shard
  std::vector<DamagedLabel> damaged;
};

// Maps and indexes these files. Errors: those of MappedFile::Open() and IndexShard(), and of
// `tick`, which is called after every file.
Result<ImageShards> OpenShards(const std::vector<std::string>& paths, std::int64_t classes,
                               const std::function<Status()>& tick);

}  // namespace gaccd
