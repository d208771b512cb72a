// Reads only the weights of a checkpoint, in one process: for export, evaluation, prediction.
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
  Generation generation;                         // that was read
  Manifest manifest;                             // of this generation
  Job job;                                       // of the run that was saved
  std::vector<NamedTensor> tensors;              // finite
  bool averaged = false;                         // the tensors are averages (optimizer.ema)
  std::vector<std::string> skipped_checkpoints;  // newer ones, "step-...: why"
};

// Reads the newest intact generation, or the one that the path names. kData, with the error of each
// generation, if none is intact. raw: reads the weights although averages of them exist; kUsage if
// none exist. Adds the bytes that are read to `ticks`, which may be null.
Result<SavedWeights> ReadSavedWeights(const GenerationPlace& place, bool raw = false,
                                      Ticks* ticks = nullptr);

// Text for users if the run keeps the checkpoint of its best evaluation, but `weights` belong to
// another one that no path named; otherwise empty.
[[nodiscard]] std::string OtherBestText(const GenerationPlace& place, const SavedWeights& weights);

}  // namespace gaccd
