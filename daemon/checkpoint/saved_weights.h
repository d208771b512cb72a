// The weights of a checkpoint by themselves, on one process: for export, evaluation, prediction.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/config/job.h"
#include "daemon/weights/safetensors.h"

namespace gaccd {

struct SavedWeights {
  Generation generation;             // the one they belong to
  Manifest manifest;                 // its own
  Job job;                           // of the run that was saved
  std::vector<NamedTensor> tensors;  // finite
  bool averaged = false;             // they are the averages of a job with optimizer.ema
  std::vector<std::string> skipped_checkpoints;  // newer ones, "step-...: why"
};

// Of the newest generation that is whole, or of the one that the path named. kData, naming what is
// wrong with each, when there is none. raw: the weights also where there are averages of them;
// kUsage where there are none. `ticks`, which may be null, gets the bytes that are read.
Result<SavedWeights> ReadSavedWeights(const GenerationPlace& place, bool raw = false,
                                      Ticks* ticks = nullptr);

// For people, where the run keeps the checkpoint of its best evaluation and this is another one,
// which no path named. Empty: it is not so.
[[nodiscard]] std::string OtherBestText(const GenerationPlace& place, const SavedWeights& weights);

}  // namespace gaccd
