// <run>/DONE: the training is complete. A further start says so and does nothing; who wants to go
// on, for example with more epochs, removes the file.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Rank 0 looks, all get its answer: nothing, or what the file says. First of all that use the run
// folder: kConfig when it is in a place that is not safe (safe_place.h). Collective.
Result<std::string> FindDone(Communicator& comm, const std::string& run_dir);

// By rank 0; down to the disk.
Status MarkDone(const std::string& run_dir, const std::string& text, unsigned mode);

}  // namespace gaccd
