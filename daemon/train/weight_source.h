// Weights from outside for a model: of a safetensors file, of a folder of Hugging Face's
// transformers, or of a checkpoint of gaccd; for --init-weights and --weights.
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
  // A safetensors file; a folder with model.safetensors; a run folder, of which the newest
  // checkpoint that is intact counts; or a checkpoint.
  std::string path;
  WeightRules rules;
  bool best = false;  // of a run folder: the checkpoint of the best evaluation
  bool raw = false;   // of a checkpoint with averages: the weights themselves
  // The model of a checkpoint must be that of the job also in its loss and dropout.
  bool same_loss = false;
};

struct LoadedWeights {
  WeightsReport report;
  std::int64_t step = 0;  // of a checkpoint: the updates it holds
};

// The safetensors file that `path` means: itself, or the one in a folder; empty for a checkpoint.
[[nodiscard]] std::string FindWeightsFile(const std::string& path);

// The names of the columns that these weights were trained with, as far as they can be read: of a
// folder those of the newest checkpoint. What is damaged is found when the weights are loaded.
[[nodiscard]] std::vector<std::string> ColumnsOfWeights(const std::string& path, bool best);

// Rank 0 reads; all ranks get the same parameters; those that are not loaded start as job.seed
// says. `loaded` is filled on rank 0. Collective. Errors: those of the file and of
// AssignParameters(); where config.json is next to the file, CheckTransformersConfig(). Of a
// checkpoint kConfig where its run has another model than the job; with rules only what
// CheckTransformersConfig() compares. Without rules.fresh the classes and columns of the weights
// must be those of the job's data, CheckSameClasses(), and of the job, CheckSameColumns().
Agreement LoadWeightsTogether(Communicator& comm, Engine& engine, const Model& model,
                              const Job& job, const WeightRequest& request, LoadedWeights* loaded);

}  // namespace gaccd
