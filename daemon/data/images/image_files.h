// Where the images of a data set are: in folders, arrays or tar files.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"
#include "daemon/data/formats/array.h"
#include "daemon/data/images/image.h"
#include "daemon/data/mapped_file.h"
#include "daemon/data/node_share.h"

namespace gaccd {

// Image folders: one subfolder per class.

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

// Images and labels as arrays, in IDX files (plain or .gz) or NPY files.

// Images of one size: bytes [samples, height, width] or [samples, height, width, channels].
struct ImageArray {
  Array array;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 1;  // 1: grey; 3: RGB

  [[nodiscard]] std::int64_t samples() const { return array.shape[0]; }
};

// Errors: those of LoadIdx() or LoadNpy(); kData for another type or shape, and for no image.
Result<ImageArray> LoadImageArray(const std::string& path, NodeShare* share);

// The labels of `images`, of any integer type, [samples]; their range is not checked. kData.
Result<std::vector<std::int64_t>> LoadImageLabels(const std::string& path, const ImageArray& images,
                                                  NodeShare* share);

// Copies the needed part of an image as grey (channels 1) or RGB (3). kData: that of `needed`.
// REQUIRES: index < images.samples().
Result<ImagePart> CopyImagePart(const ImageArray& images, std::int64_t index, std::int64_t channels,
                                const NeededPart& needed);

// Images in tar files ("shards"), as written by WebDataset: members with the same key are one
// sample; the key is the path up to the first dot of the file name. 000/17.jpg and 000/17.cls: the
// image and its label as text. Members with other extensions are ignored.

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
