// Weights for --init-weights and --weights: from a safetensors file, a folder of Hugging Face's
// transformers, or a checkpoint of gaccd.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/bootstrap/agree.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/engine/engine.h"
#include "daemon/replica/model.h"
#include "daemon/weights/weights.h"

namespace gaccd {

struct WeightRequest {
  // A safetensors file; a folder with model.safetensors; a run folder, whose newest intact
  // checkpoint is used; or a checkpoint.
  std::string path;
  WeightRules rules;
  bool best = false;  // of a run folder: use the checkpoint of the best evaluation
  bool raw = false;   // of a checkpoint with averages: use the raw weights
  // The loss and the dropout of a checkpoint's model must equal those of the job, too.
  bool same_loss = false;
};

struct LoadedWeights {
  WeightsReport report;
  std::int64_t step = 0;                      // of a checkpoint: its number of updates
  std::vector<std::string> class_names = {};  // of the weights, unless a layer is new
};

// The safetensors file of `path`: the path itself, or the file in that folder; empty for a
// checkpoint.
[[nodiscard]] std::string FindWeightsFile(const std::string& path);

// The names of the columns that these weights were trained with; for a run folder, those of its
// newest checkpoint. Empty if they cannot be read: loading the weights then reports the damage.
[[nodiscard]] std::vector<std::string> ReadWeightsColumnNames(const std::string& path, bool best);

// Collective. Rank 0 reads the weights; all ranks get the same parameters. Parameters that are not
// loaded are initialised from job.seed. `loaded` is filled on rank 0. Errors: those of the file and
// of AssignParameters(), and of CheckTransformersConfig() if config.json is next to the file.
// kConfig for a checkpoint of another model than the job's; with rules, only the properties that
// CheckTransformersConfig() compares must be equal. Without rules.new_weights, the classes of the
// weights must equal those of the job's data (CheckSameClasses()), and the columns those of the job
// (CheckSameColumns()).
Agreement LoadWeightsTogether(Communicator& comm, Engine& engine, const Model& model,
                              const Job& job, const WeightRequest& request, LoadedWeights* loaded);

}  // namespace gaccd
