// `gaccd data show`: one training image as the model sees it, and its random augmentation.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

// Writes the PNG and prints its random parameters. kUsage without a job or the word show, or if
// there is no such sample or the training does not use it in this epoch; kConfig if data.train is
// not a source of images; errors of opening, reading and writing.
[[nodiscard]] Status RunDataCommand(const Flags& flags);

}  // namespace gaccd
