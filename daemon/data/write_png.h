// Images as PNG files, to look at.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/data/image.h"

namespace gaccd {

// kIo, with the reason, when the file cannot be written.
Status WritePng(const Image& image, const std::string& path);

}  // namespace gaccd
