// TrainedModel: the model of a job with loaded weights, ready on this rank's device, and the data
// for evaluation or prediction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/config/verb.h"
#include "daemon/data/dataset.h"
#include "daemon/data/index_source.h"
#include "daemon/engine/engine.h"
#include "daemon/launch/session.h"
#include "daemon/replica/model.h"
#include "daemon/weights/weights.h"

namespace gaccd {

struct TrainedModel {
  Job job;
  Status job_status;                     // why there is no job
  std::unique_ptr<Dataset> data;         // data.eval of the job
  std::optional<Model> model;            // for these samples
  std::unique_ptr<Engine> engine;        // for batches of job.batch.micro; without optimiser state
  WeightsReport weights;                 // on rank 0
  std::vector<std::string> class_names;  // of the weights, on rank 0
  std::int64_t step = 0;                 // if loaded from a checkpoint: its number of updates

  // The samples of this rank.
  [[nodiscard]] EvalShard MakeShard(const Communicator& comm) const;

  // A line with the weights, and one with the conversions of the data if there are any.
  [[nodiscard]] std::string Report() const;
};

using MakeModel = std::function<Result<Model>(const ModelSpec& model, const SampleSpec& sample)>;

// The job of --job with the values of --set, for the verb of the flags. Errors: those of a job;
// kConfig for a job without data.eval.
Result<Job> ReadInferenceJob(const Flags& flags);

// Opens the model of into->job with --weights and related flags. Only rank 0 reads the weights.
// Collective; `into` must not be moved afterwards. Errors: into->job_status; those of data and of
// weights; kConfig for a checkpoint of another model.
RankStatus OpenTrainedModel(const Flags& flags, Session& session, const MakeModel& make,
                            TrainedModel* into);

// Runs verbs of a trained model on all ranks, without a run folder.

// The common work of all ranks. `trained` is initially empty, and lives as long as the session.
using RanksWork = std::function<RankStatus(Session& session, TrainedModel& trained)>;

// Connects to the other ranks like a training, does the work and exits together with them.
VerbOutcome RunOnRanks(const Flags& flags, const ErrorPrinter& print, const RanksWork& work);

}  // namespace gaccd
