#include "daemon/train/weight_source.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <variant>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "collectives/base/ticks.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/saved_weights.h"
#include "daemon/checkpoint/train_state.h"
#include "daemon/data/class_names.h"
#include "daemon/data/formats/column_names.h"
#include "daemon/models/graph_file.h"
#include "daemon/telemetry/log.h"
#include "daemon/weights/safetensors.h"
#include "daemon/weights/transformers_folder.h"

namespace gaccd {
namespace {

constexpr std::string_view kWeightsName = "model.safetensors";  // used by transformers

struct Found {
  std::string from;
  SafetensorsFile file;
  std::int64_t step = 0;
};

bool HasRules(const WeightRules& rules) {
  return !rules.new_weights.empty() || !rules.unused.empty();
}

Result<Found> ReadFile(const WeightRequest& request, const std::string& path, const Job& job,
                       Ticks* ticks) {
  if (request.best || request.raw) {
    return Status(ErrorKind::kUsage,
                  StrCat(request.best ? "--best" : "--raw-weights",
                         ": expected a run folder or a checkpoint, found ", path));
  }
  const std::string config = ParentFolder(path) + "/config.json";
  if (PathExists(config)) {
    GACCD_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(config, ErrorKind::kData));
    GACCD_RETURN_IF_ERROR(
        CheckTransformersConfig(text, job.model, request.rules.new_weights).WithContext(config));
  }
  GACCD_ASSIGN_OR_RETURN(SafetensorsFile file, ReadSafetensors(path, ticks));
  return Found{.from = path, .file = std::move(file)};
}

// With rules, another model is expected: only properties that shapes do not show must be equal.
Status CheckSavedModel(const Job& saved, const WeightRequest& request, const Job& job) {
  if (HasRules(request.rules)) {
    const auto config = TransformersConfig(saved.model, saved.data.class_name);
    if (!config.ok()) return Status::Ok();  // neither gpt nor bert
    return CheckTransformersConfig(*config, job.model, request.rules.new_weights);
  }
  return request.same_loss ? CheckSameModel(saved, job) : CheckSameNetwork(saved, job);
}

Result<Found> ReadCheckpoint(const WeightRequest& request, const Job& job, Ticks* ticks) {
  GACCD_ASSIGN_OR_RETURN(GenerationPlace place, FindGenerations(request.path));
  if (request.best) {
    GACCD_ASSIGN_OR_RETURN(place, OnlyBest(std::move(place)));
  }
  if (place.generations.empty()) {
    const bool sharded = PathExists(StrCat(request.path, "/", kWeightsName, ".index.json"));
    return Status(
        ErrorKind::kData,
        StrCat("'", request.path, "' holds neither a checkpoint nor ", kWeightsName,
               sharded ? ", but parts of it: save_pretrained(DIR, max_shard_size='999GB') "
                         "of transformers writes one file"
                       : ""));
  }
  GACCD_ASSIGN_OR_RETURN(SavedWeights weights, ReadSavedWeights(place, request.raw, ticks));
  for (const std::string& note : weights.skipped_checkpoints) {
    LogWarning(StrCat("checkpoint skipped: ", note));
  }
  Found found{.from = weights.generation.PathIn(place.folder),
              .file = {.tensors = std::move(weights.tensors), .others = {}, .metadata = {}},
              .step = weights.generation.step};
  GACCD_RETURN_IF_ERROR(CheckSavedModel(weights.job, request, job).WithContext(found.from));
  if (const std::string better = OtherBestText(place, weights); !better.empty()) {
    LogWarning(StrCat(found.from, ": ", better));
  }
  found.file.metadata = DataMetadata(weights.job.data);
  return found;
}

// An exported model begins with the weights of its folder, so new parameters have their values. Its
// graph has the values of some buffers in constants: others would have no effect.
class ExportedWeights {
 public:
  explicit ExportedWeights(std::string folder) : folder_(std::move(folder)) {}

  Status Assign(const Model& model, bool always, std::span<float> parameters, Ticks* ticks) {
    GACCD_ASSIGN_OR_RETURN(const GraphFile graph, ReadGraph(folder_));
    const auto in_constants = [](const GraphTensor& one) { return one.buffer && one.frozen; };
    if (!always && std::ranges::none_of(graph.parameters, in_constants)) return Status::Ok();
    const std::string path = GraphWeightsFile(folder_);
    GACCD_ASSIGN_OR_RETURN(const SafetensorsFile file, ReadSafetensors(path, ticks));
    const auto report =
        AssignParameters(path, file, model.layout(), parameters, model.weight_names(), {});
    GACCD_RETURN_IF_ERROR(report.status());
    for (const GraphTensor& one : graph.parameters) {
      if (!in_constants(one)) continue;
      const auto values = ValuesOf(model, one.name, parameters);
      constants_[one.name].assign(values.begin(), values.end());
    }
    return Status::Ok();
  }

  [[nodiscard]] Status CheckConstants(const std::string& from, const Model& model,
                                      std::span<const float> parameters) const {
    for (const auto& [name, values] : constants_) {
      if (std::ranges::equal(values, ValuesOf(model, name, parameters))) continue;
      return {ErrorKind::kData,
              StrCat(from, ": ", name, ": expected the values of ", GraphWeightsFile(folder_),
                     ", which the graph has in constants, found others: load these weights into "
                     "the model in PyTorch and export it again")};
    }
    return Status::Ok();
  }

 private:
  static std::span<const float> ValuesOf(const Model& model, const std::string& name,
                                         std::span<const float> parameters) {
    const FlatEntry* const entry = model.layout().Find(name);
    if (entry == nullptr) return {};
    return parameters.subspan(static_cast<std::size_t>(entry->offset),
                              static_cast<std::size_t>(entry->elements));
  }

  std::string folder_;
  std::map<std::string, std::vector<float>> constants_;
};

Status Load(const WeightRequest& request, const Model& model, const Job& job,
            std::span<float> parameters, const TickFunction& tick, LoadedWeights* loaded) {
  const std::string path = FindWeightsFile(request.path);
  Ticks ticks(tick);
  GACCD_ASSIGN_OR_RETURN(const Found found, path.empty() ? ReadCheckpoint(request, job, &ticks)
                                                         : ReadFile(request, path, job, &ticks));
  loaded->step = found.step;
  const auto other_values =
      CheckSameFeatures(found.file.metadata, DataMetadata(job.data), found.from);
  // A training adapts to other values.
  if (!other_values.ok() && request.same_loss) return other_values.status();
  const std::string warning = other_values.ok() ? *other_values : other_values.status().message();
  if (!warning.empty()) LogWarning(warning);
  if (request.rules.new_weights.empty()) {  // a new head has the classes of the job's data
    GACCD_ASSIGN_OR_RETURN(const ClassNames classes, ReadClassNames(job));
    ClassNames saved = ReadWeightsClassNames(found.from, found.file.metadata);
    GACCD_RETURN_IF_ERROR(CheckSameClasses(saved, classes));
    loaded->class_names = std::move(saved.names);
    GACCD_RETURN_IF_ERROR(CheckSameColumns(ColumnNamesFromMetadata(found.file.metadata), found.from,
                                           job.data.column_name));
  }
  GACCD_RETURN_IF_ERROR(tick());
  model.InitializeAll(job.seed, parameters);  // rank 0 sends them to all stages
  GACCD_RETURN_IF_ERROR(tick());
  const auto* const graph = std::get_if<GraphSpec>(&job.model.architecture);
  ExportedWeights exported(graph != nullptr ? graph->path : "");
  // A checkpoint of the same graph has its values.
  const bool same_graph = path.empty() && !HasRules(request.rules);
  if (graph != nullptr && !same_graph && path != GraphWeightsFile(graph->path)) {
    GACCD_RETURN_IF_ERROR(
        exported.Assign(model, !request.rules.new_weights.empty(), parameters, &ticks));
  }
  GACCD_ASSIGN_OR_RETURN(loaded->report,
                         AssignParameters(found.from, found.file, model.layout(), parameters,
                                          model.weight_names(), request.rules));
  return exported.CheckConstants(found.from, model, parameters);
}

}  // namespace

std::string FindWeightsFile(const std::string& path) {
  if (!IsFolder(path)) return path;
  std::string file = StrCat(path, "/", kWeightsName);
  return PathExists(file) ? file : std::string();
}

std::vector<std::string> ReadWeightsColumnNames(const std::string& path, bool best) {
  const std::string file = FindWeightsFile(path);
  if (!file.empty()) {
    const auto metadata = ReadSafetensorsMetadata(file);
    return metadata.ok() ? ColumnNamesFromMetadata(*metadata) : std::vector<std::string>();
  }
  auto place = FindGenerations(path);
  if (place.ok() && best) place = OnlyBest(*std::move(place));
  if (!place.ok()) return {};
  for (const Generation& one : place->generations) {
    const auto manifest = ReadManifest(place->folder, one);
    if (!manifest.ok()) continue;
    const auto job = SavedJob(*manifest);
    if (job.ok()) return job->data.column_name;
  }
  return {};
}

Agreement LoadWeightsTogether(Communicator& comm, Engine& engine, const Model& model,
                              const Job& job, const WeightRequest& request, LoadedWeights* loaded) {
  Agreement read;
  const Status changed = engine.ChangeParameters([&](std::span<float> parameters) -> Status {
    read = WorkTogether(comm, [&](const TickFunction& tick) {
      return comm.rank() == 0 ? Load(request, model, job, parameters, tick, loaded) : Status::Ok();
    });
    GACCD_RETURN_IF_ERROR(read.status);
    return comm.Broadcast(View(parameters), 0);
  });
  return read.status.ok() ? AgreeOn(comm, changed) : read;
}

}  // namespace gaccd
