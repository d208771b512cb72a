// Standard output of verbs.
#pragma once

#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// kIo if not everything could be written, so that a full disk or a closed pipe does not look like
// success. The message is empty if the reader has closed the pipe (`gaccd plan | head -1`).
// REQUIRES: SIGPIPE is ignored.
Status PrintOut(std::string_view text);

}  // namespace gaccd
