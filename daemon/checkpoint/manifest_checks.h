// What a decoded manifest must fulfil before its files are read.
#pragma once

#include "daemon/checkpoint/manifest.h"

namespace gaccd {

// kData, with the expected and the found value.
Status CheckManifest(const Manifest& manifest);

}  // namespace gaccd
