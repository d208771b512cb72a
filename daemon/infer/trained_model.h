// TrainedModel: the model of a job with weights from outside, ready on this rank's device, and the
// data that it is asked about.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/engine/engine.h"
#include "daemon/launch/session.h"
#include "daemon/replica/model.h"
#include "daemon/train/rank_status.h"
#include "daemon/weights/weights.h"

namespace gaccd {

struct TrainedModel {
  Job job;
  Status job_status;               // why there is no job
  std::unique_ptr<Dataset> data;   // data.eval of the job
  std::optional<Model> model;      // for samples of this kind
  std::unique_ptr<Engine> engine;  // for batches of job.batch.micro; holds no optimiser state
  WeightsReport weights;           // on rank 0
  std::int64_t step = 0;           // of a checkpoint: the updates it holds
};

using MakeModel = std::function<Result<Model>(const ModelSpec& model, const SampleSpec& sample)>;

// The job of --job with the values of --set, for the verb of the flags. Errors: those of a job;
// kConfig for a job without data.eval.
Result<Job> ReadInferenceJob(const Flags& flags);

// By into->job, --weights and what goes with them. Weights are read by rank 0 alone. Collective;
// `into` stays where it is. Errors: into->job_status; those of data and of weights; kConfig for a
// checkpoint of another model.
RankStatus OpenTrainedModel(const Flags& flags, Session& session, const MakeModel& make,
                            TrainedModel* into);

}  // namespace gaccd
