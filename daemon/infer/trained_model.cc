#include "daemon/infer/trained_model.h"

#include <new>
#include <utility>
#include <variant>

#include "collectives/base/files.h"
#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/config/job_text.h"
#include "daemon/data/formats/column_names.h"
#include "daemon/data/tokenizer.h"
#include "daemon/launch/launch.h"
#include "daemon/models/graph_network.h"
#include "daemon/train/consistency.h"
#include "daemon/train/open_data.h"
#include "daemon/train/run_options.h"
#include "daemon/train/weight_source.h"

namespace gaccd {

namespace {

// kConfig if the evaluation texts and the training texts have different arrays: without one, a
// model would read all tokens, or one segment. Labels and weights may be absent.
Status CheckSameInputs(const DataSpec& data) {
  const auto* train = std::get_if<TokensSpec>(&data.train);
  const auto* eval = std::get_if<TokensSpec>(&*data.eval);
  if (train == nullptr || eval == nullptr) return Status::Ok();
  const auto check = [](const char* name, bool expected, bool found) -> Status {
    if (expected == found) return Status::Ok();
    return {ErrorKind::kConfig,
            StrCat("data.eval.tokens.", name, ": expected ", expected ? "an array" : "none",
                   ", as in data.train, found ", found ? "one" : "none")};
  };
  GACCD_RETURN_IF_ERROR(check("lengths", train->lengths.has_value(), eval->lengths.has_value()));
  return check("segments", train->segments.has_value(), eval->segments.has_value());
}

}  // namespace

Result<Job> ReadInferenceJob(const Flags& flags) {
  const std::string_view verb = Name(flags.verb);
  if (!flags.job) return Status(ErrorKind::kUsage, StrCat(verb, " needs --job=FILE"));
  if (!flags.weights) return Status(ErrorKind::kUsage, StrCat(verb, " needs --weights=PATH"));
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job, flags.verb));
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  GACCD_ASSIGN_OR_RETURN(job, WithGraphDigest(std::move(job)));
  if (flags.best && !IsFolder(*flags.weights)) {
    return Status(ErrorKind::kUsage, "--best: --weights must be a run folder");
  }
  if (flags.raw_weights && !IsFolder(*flags.weights)) {
    return Status(ErrorKind::kUsage,
                  "--raw-weights: --weights must be a run folder or a checkpoint");
  }
  if (job.data.eval) {
    GACCD_RETURN_IF_ERROR(CheckSameInputs(job.data));
    // Predictions are for the tokens as they are, without masks.
    auto* tokens = std::get_if<TokensSpec>(&*job.data.eval);
    if (flags.verb == Verb::kPredict && tokens != nullptr) tokens->masked.reset();
    return job;
  }
  return Status(ErrorKind::kConfig, StrCat("data.eval: ", verb, " needs it; the job has none"));
}

namespace {

Agreement OpenData(const Flags& flags, Communicator& comm, TrainedModel* into) {
  // Like a training, an evaluation leaves out damaged records; predictions need a row for each.
  const bool each = flags.verb == Verb::kPredict;
  const BadRecordRules rules{.policy = each ? OnBadRecord::kStop : flags.on_bad_record,
                             .quota = flags.bad_record_quota,
                             .seed = into->job.seed,
                             .leave_out = true};
  const DataSpec& data = into->job.data;
  return OpenSharedData(comm, [&](NodeShare* share) -> Status {
    GACCD_ASSIGN_OR_RETURN(into->data, OpenDataset(*data.eval, data.normalize, rules, share,
                                                   into->job.folder, data.column_name));
    return Status::Ok();
  });
}

// The column names of a table: those of the job, else of the weights, else of the job's tables.
Status FindColumns(const Flags& flags, Communicator& comm, Job* job) {
  if (!IsTable(*job->data.eval)) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(job->data.column_name,
                         NamesFromRankZero(comm, [&]() -> Result<std::vector<std::string>> {
                           std::vector<std::string> names = job->data.column_name;
                           if (names.empty())
                             names = ReadWeightsColumnNames(*flags.weights, flags.best);
                           return names.empty() ? ReadColumnNames(*job) : names;
                         }));
  return Status::Ok();
}

}  // namespace

EvalShard TrainedModel::MakeShard(const Communicator& comm) const {
  const bool whole_batches = job.batch.bits == Bits::kAnySplit;
  return MakeEvalShard(data->size(), comm.rank(), comm.size(), whole_batches ? job.batch.micro : 1);
}

std::string TrainedModel::Report() const {
  const std::string converted = data->conversions();
  return StrCat(
      Printable(ToText(weights)), "\n",
      converted.empty() ? "" : StrCat("converted while reading: ", Printable(converted), "\n"));
}

namespace {

Status MakeInferenceEngine(const Flags& flags, Session& session, TrainedModel* into) {
  const Communicator& comm = session.comm;
  const EvalShard shard = into->MakeShard(comm);
  GACCD_ASSIGN_OR_RETURN(
      into->engine,
      MakeEngine(session.device_comm(), *into->model,
                 {.replica = {.eval_batches = EvalBatchSizes(shard, into->job.batch.micro)},
                  .optimizer = {.lr = 1, .kind = SgdSpec{}},  // has no state
                  .numerics = GetNumerics(into->job),
                  .choice = session.MakeEngineChoice(flags)}));
  return Status::Ok();
}

RankStatus LoadWeights(const Flags& flags, Communicator& comm, TrainedModel* into) {
  const std::string file = FindWeightsFile(*flags.weights);
  const Status fits = comm.rank() == 0 ? CheckTokenizers(into->job, file) : Status::Ok();
  if (Agreement all = AgreeOn(comm, fits); !all.status.ok()) return all;
  LoadedWeights loaded{.report = {.from = *flags.weights}};
  Agreement all = LoadWeightsTogether(comm, *into->engine, *into->model, into->job,
                                      {.path = *flags.weights,
                                       .rules = MakeWeightRules(flags),
                                       .best = flags.best,
                                       .raw = flags.raw_weights,
                                       .same_loss = true},
                                      &loaded);
  into->weights = std::move(loaded.report);
  into->step = loaded.step;
  into->class_names = std::move(loaded.class_names);
  return all;
}

}  // namespace

RankStatus OpenTrainedModel(const Flags& flags, Session& session, const MakeModel& make,
                            TrainedModel* into) {
  Communicator& comm = session.comm;
  if (Agreement all = AgreeOn(comm, into->job_status); !all.status.ok()) return all;
  GACCD_RETURN_IF_ERROR(session.CheckAllTheSame(flags, into->job));
  GACCD_RETURN_IF_ERROR(FindColumns(flags, comm, &into->job));
  if (Agreement all = OpenData(flags, comm, into); !all.status.ok()) return all;
  into->job.data.integer_features = into->data->has_integer_features();
  auto model = make(into->job.model, MakeBatchSpec(into->job, *into->data));
  if (Agreement all = AgreeOn(comm, model.status()); !all.status.ok()) return all;
  into->model = *std::move(model);
  GACCD_RETURN_IF_ERROR(CheckSameData(comm, *into->data, nullptr));
  GACCD_RETURN_IF_ERROR(session.SelectDevice(flags, into->job));
  Agreement made = AgreeOn(comm, MakeInferenceEngine(flags, session, into));
  if (!made.status.ok()) return made;
  return LoadWeights(flags, comm, into);
}

VerbOutcome RunOnRanks(const Flags& flags, const ErrorPrinter& print, const RanksWork& work) {
  auto job = ReadInferenceJob(flags);
  SetNcclEnvironment(flags, job.ok() && job->deterministic);
  auto session = Session::Join(flags);
  if (!session.ok()) return {session.status()};
  TrainedModel trained;
  trained.job_status = job.status();
  if (job.ok()) trained.job = *std::move(job);
  RankStatus ended;
  try {
    ended = work(*session, trained);
  } catch (const std::bad_alloc&) {  // of this rank alone, while the others wait for it
    ended = {NoMemory("the data, the model or their copies", 0), /*of_all=*/false};
  }
  return ExitRank(std::move(ended), *session, print);
}

}  // namespace gaccd
