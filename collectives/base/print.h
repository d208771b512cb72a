// Standard output, for verbs whose result it is.
#pragma once

#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// kIo when not all of it could be written: a full disk or a closed pipe must not look like success.
// The message is empty when the reader has closed the pipe (`gaccd plan | head -1`), who wants no
// more text. REQUIRES: SIGPIPE is ignored.
Status PrintOut(std::string_view text);

}  // namespace gaccd
