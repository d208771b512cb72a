// Images and labels as arrays, in IDX files (plain or .gz) or NPY files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/data/formats/array.h"
#include "daemon/data/images/image.h"
#include "daemon/data/node_share.h"

namespace gaccd {

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

}  // namespace gaccd
