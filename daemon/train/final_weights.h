// --save-weights: writes the final weights of a run. If the file cannot be written, the weights are
// written to another place, as a run may take days.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

struct FinalWeights {
  std::string path;  // as given by the user
  unsigned mode = 0600;
  std::map<std::string, std::string> metadata = {};
  std::chrono::milliseconds bound{0};  // --bound: see storage_limits.h
  TickFunction tick = {};              // called while writing
  // path of the checkpoint with the same weights; empty: none
  std::string checkpoint;
  std::string run_dir;                             // empty: none
  std::map<std::string, std::string> copies = {};  // see WeightNames
};

// On rank 0. If `path` cannot be written, the error contains the checkpoint with the weights and
// how to export them, or where else they were written: run folder, TMPDIR, /tmp. kIo; kTempFail if
// the file system does not respond and a requeued run can write them from its checkpoint.
Status SaveFinalWeights(const FlatLayout& layout, std::vector<float> parameters,
                        const FinalWeights& weights);

}  // namespace gaccd
