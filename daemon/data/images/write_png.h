// Writes images as PNG files.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/data/images/image.h"

namespace gaccd {

// kIo with the reason.
Status WritePng(const Image& image, const std::string& path);

// CheckReplaces() for an output of WritePng(): kIo for any other file, such as a data image.
Status CheckReplacesPng(const std::string& path);

}  // namespace gaccd
