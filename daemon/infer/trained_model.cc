#include "daemon/infer/trained_model.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/checkpoint/run_state.h"
#include "daemon/checkpoint/saved_job.h"
#include "daemon/checkpoint/saved_weights.h"
#include "daemon/config/help.h"
#include "daemon/config/job_text.h"
#include "daemon/data/class_names.h"
#include "daemon/data/index_source.h"
#include "daemon/data/tokenizer.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/open_data.h"
#include "daemon/train/run_stages.h"
#include "daemon/train/same_data.h"

namespace gaccd {
namespace {

Result<Job> ReadJob(const Flags& flags) {
  const std::string_view verb = Name(flags.verb);
  if (!flags.job) return Status(ErrorKind::kUsage, StrCat(verb, " needs --job=FILE"));
  if (!flags.weights) return Status(ErrorKind::kUsage, StrCat(verb, " needs --weights=PATH"));
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job, flags.verb));
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  if (flags.best && !IsFolder(*flags.weights)) {
    return Status(ErrorKind::kUsage, "--best: --weights must be a run folder");
  }
  if (flags.raw_weights && !IsFolder(*flags.weights)) {
    return Status(ErrorKind::kUsage,
                  "--raw-weights: --weights must be a run folder or a checkpoint");
  }
  if (job.data.eval) {
    // What is asked about is taken as it is.
    auto* tokens = std::get_if<TokensSpec>(&*job.data.eval);
    if (flags.verb == Verb::kPredict && tokens != nullptr) tokens->masked.reset();
    return job;
  }
  return Status(ErrorKind::kConfig, StrCat("data.eval: ", verb, " needs it; the job has none"));
}

Agreement OpenData(const Flags& flags, Communicator& comm, TrainedModel* into) {
  // As in a training: what is damaged is left out of an evaluation.
  const BadRecordRules rules{.policy = flags.on_bad_record,
                             .quota = flags.bad_record_quota,
                             .seed = into->job.seed,
                             .leave_out = true};
  const DataSpec& data = into->job.data;
  return OpenDataTogether(comm, [&](NodeShare* share) -> Status {
    GACCD_ASSIGN_OR_RETURN(into->data,
                           OpenDataset(*data.eval, data.normalize, rules, share, into->job.folder));
    return Status::Ok();
  });
}

Status MakeEngineOf(const Flags& flags, Session& session, TrainedModel* into) {
  const Communicator& comm = session.comm;
  const EvalShard shard = ShardOf(into->data->size(), comm.rank(), comm.size());
  GACCD_ASSIGN_OR_RETURN(
      into->engine,
      MakeEngine(session.between_gpus ? *session.between_gpus : session.comm, *into->model,
                 {.replica = {.eval_batches = EvalBatchSizes(shard, into->job.batch.micro)},
                  .optimizer = {.lr = 1, .kind = SgdSpec{}},  // which keeps no state
                  .numerics = NumericsOf(into->job),
                  .choice = EngineChoiceOf(flags, session)}));
  return Status::Ok();
}

// The weights of a checkpoint, as those of a file. Rules say that another model is meant.
Result<SafetensorsFile> ReadCheckpoint(const Flags& flags, TrainedModel* into) {
  GACCD_ASSIGN_OR_RETURN(GenerationPlace place, FindGenerations(*flags.weights));
  if (flags.best) {
    GACCD_ASSIGN_OR_RETURN(place, OnlyBest(std::move(place)));
  }
  GACCD_ASSIGN_OR_RETURN(SavedWeights weights, ReadSavedWeights(place, flags.raw_weights));
  for (const std::string& note : weights.passed_over) {
    LogWarning(StrCat("checkpoint skipped: ", note));
  }
  into->step = weights.generation.step;
  into->weights.from = weights.generation.PathIn(place.folder);
  if (!flags.new_weights && !flags.unused_weights) {
    GACCD_RETURN_IF_ERROR(
        CheckSameModel(weights.manifest, into->job).WithContext(into->weights.from));
  }
  GACCD_ASSIGN_OR_RETURN(const Job saved, SavedJob(weights.manifest));
  return SafetensorsFile{.tensors = std::move(weights.tensors),
                         .others = {},
                         .metadata = ClassMetadata(saved.data.class_name)};
}

// On rank 0.
Status ReadWeights(const Flags& flags, TrainedModel* into, std::span<float> parameters) {
  const bool is_folder = IsFolder(*flags.weights);
  GACCD_RETURN_IF_ERROR(CheckTokenizers(into->job, is_folder ? "" : *flags.weights));
  const Model& model = *into->model;
  model.Initialize(into->job.seed, parameters);
  into->weights.from = *flags.weights;
  GACCD_ASSIGN_OR_RETURN(const SafetensorsFile file,
                         is_folder ? ReadCheckpoint(flags, into) : ReadSafetensors(*flags.weights));
  GACCD_ASSIGN_OR_RETURN(const ClassNames classes, ReadClassNames(into->job));
  if (!flags.new_weights) {
    GACCD_RETURN_IF_ERROR(
        CheckSameClasses(ReadClassNamesOfWeights(into->weights.from, file.metadata), classes));
  }
  GACCD_ASSIGN_OR_RETURN(into->weights,
                         TakeParameters(into->weights.from, file, model.layout(), parameters,
                                        model.weight_names(), WeightRulesOf(flags)));
  return Status::Ok();
}

Ending LoadWeights(const Flags& flags, Communicator& comm, TrainedModel* into) {
  std::vector<float> parameters(static_cast<std::size_t>(into->model->layout().size()));
  const Status read = comm.rank() == 0 ? ReadWeights(flags, into, parameters) : Status::Ok();
  if (Agreement all = AgreeOn(comm, read); !all.status.ok()) return Shared(std::move(all));
  if (Status sent = comm.Broadcast(View(std::span<float>(parameters)), 0); !sent.ok()) {
    return {std::move(sent), false};
  }
  return Shared(AgreeOn(comm, into->engine->SetParameters(parameters)));
}

}  // namespace

Ending OpenTrainedModel(const Flags& flags, Session& session, const MakeModel& make,
                        TrainedModel* into) {
  Communicator& comm = session.comm;
  auto job = ReadJob(flags);
  if (Agreement all = AgreeOn(comm, job.status()); !all.status.ok()) return Shared(std::move(all));
  into->job = *std::move(job);
  if (Status same = CheckAllTheSame(flags, into->job, comm); !same.ok()) return {same};
  if (Agreement all = OpenData(flags, comm, into); !all.status.ok()) return Shared(std::move(all));
  auto model = make(into->job.model, BatchSpecOf(into->job, *into->data));
  if (Agreement all = AgreeOn(comm, model.status()); !all.status.ok()) {
    return Shared(std::move(all));
  }
  into->model = *std::move(model);
  if (Status same = CheckSameData(comm, *into->data, nullptr); !same.ok()) return {same};
  if (Status chosen = ChooseTogether(flags, into->job, session); !chosen.ok()) return {chosen};
  Agreement made = AgreeOn(comm, MakeEngineOf(flags, session, into));
  if (!made.status.ok()) return Shared(std::move(made));
  return LoadWeights(flags, comm, into);
}

}  // namespace gaccd
