// --save-weights: the weights at the end of a run, which may have taken days. A file that cannot be
// written then does not lose them.
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
  std::string path;  // that the user named
  unsigned mode = 0600;
  std::map<std::string, std::string> metadata = {};
  std::chrono::milliseconds bound{0};  // --bound: see storage_limits.h
  TickFunction tick = {};              // called while it writes
  std::string checkpoint;              // path of the one that holds the same weights; empty: none
  std::string run_dir;                 // empty: there is none
  std::map<std::string, std::string> copies = {};  // WeightNames
};

// Rank 0. When `path` cannot be written the message says which checkpoint holds the weights and how
// to export them, or where else they were written: run folder, TMPDIR, /tmp. kIo; kTempFail when
// the file system does not answer and a requeued run can write them from its checkpoint.
Status SaveFinalWeights(const FlatLayout& layout, std::vector<float> parameters,
                        const FinalWeights& weights);

}  // namespace gaccd
