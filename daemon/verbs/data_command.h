// `gaccd data show`: one image of the training as the model sees it, and what was drawn for it.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

// Writes the PNG and prints. Errors: kUsage without a job or the word show; kConfig where
// data.train is no source of images; those of opening and reading it, and of writing.
[[nodiscard]] Status RunDataCommand(const Flags& flags);

}  // namespace gaccd
