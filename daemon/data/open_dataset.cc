#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <variant>
#include <vector>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/data/array.h"
#include "daemon/data/idx.h"
#include "daemon/data/npy.h"
#include "daemon/data/synthetic.h"
#include "daemon/data/tokens.h"

namespace gaccd {
namespace {

Result<std::optional<Array>> LoadIfGiven(const std::optional<std::string>& path) {
  if (!path) return std::optional<Array>();
  GACCD_ASSIGN_OR_RETURN(Array array, LoadNpy(*path));
  return std::optional(std::move(array));
}

Result<std::unique_ptr<Dataset>> Open(const IdxSpec& source, const NormalizeSpec& normalize,
                                      const BadRecordRules& rules, NodeShare* share) {
  if (source.classes < 1) {
    return Status(ErrorKind::kConfig,
                  StrCat("idx: expected at least 1 class, found ", source.classes));
  }
  GACCD_ASSIGN_OR_RETURN(Array images, LoadIdx(source.images, share));
  GACCD_ASSIGN_OR_RETURN(Array labels, LoadIdx(source.labels, share));
  return MakeArrayDataset(std::move(images), std::move(labels), source.classes, normalize, rules,
                          share);
}

Result<std::unique_ptr<Dataset>> Open(const NpySpec& source, const NormalizeSpec& normalize,
                                      const BadRecordRules& rules, NodeShare* share) {
  if (source.classes < 0) {
    return Status(ErrorKind::kConfig,
                  StrCat("npy: expected 0 classes or more, found ", source.classes));
  }
  GACCD_ASSIGN_OR_RETURN(Array features, LoadNpy(source.features));
  GACCD_ASSIGN_OR_RETURN(Array targets, LoadNpy(source.targets));
  GACCD_ASSIGN_OR_RETURN(std::optional<Array> weights, LoadIfGiven(source.weights));
  return MakeArrayDataset(std::move(features), std::move(targets), source.classes, normalize, rules,
                          share, std::move(weights));
}

Result<std::unique_ptr<Dataset>> Open(const SyntheticSpec& source, const NormalizeSpec& normalize,
                                      const BadRecordRules& /*rules*/, NodeShare* /*share*/) {
  return MakeSynthetic(source, normalize);
}

// Tokens are numbers of a table, and arrays by name are taken as they are.
Status CheckNotNormalized(const NormalizeSpec& normalize) {
  if (normalize.scale == 1 && normalize.mean == 0 && normalize.std == 1) return Status::Ok();
  return {
      ErrorKind::kConfig,
      StrCat("data.normalize: is for features of idx, npy and synthetic; expected scale 1, mean 0 "
             "and std 1, found ",
             normalize.scale, ", ", normalize.mean, " and ", normalize.std)};
}

Result<std::unique_ptr<Dataset>> Open(const TokensSpec& source, const NormalizeSpec& normalize,
                                      const BadRecordRules& rules, NodeShare* share) {
  GACCD_RETURN_IF_ERROR(CheckNotNormalized(normalize));
  TokenArrays arrays;
  GACCD_ASSIGN_OR_RETURN(arrays.tokens, LoadNpy(source.tokens));
  GACCD_ASSIGN_OR_RETURN(arrays.lengths, LoadIfGiven(source.lengths));
  GACCD_ASSIGN_OR_RETURN(arrays.segments, LoadIfGiven(source.segments));
  GACCD_ASSIGN_OR_RETURN(arrays.labels, LoadIfGiven(source.labels));
  GACCD_ASSIGN_OR_RETURN(arrays.weights, LoadIfGiven(source.weights));
  return MakeTokenDataset(std::move(arrays),
                          {.vocabulary = source.vocabulary,
                           .classes = source.classes,
                           .segment_types = source.segment_types,
                           .ignored_label = static_cast<std::int32_t>(source.ignored_label)},
                          rules, share);
}

Result<std::unique_ptr<Dataset>> Open(const StreamSpec& source, const NormalizeSpec& normalize,
                                      const BadRecordRules& rules, NodeShare* share) {
  GACCD_RETURN_IF_ERROR(CheckNotNormalized(normalize));
  GACCD_ASSIGN_OR_RETURN(const Array stream, LoadNpy(source.path));
  return MakeStreamDataset(stream, source.length, source.vocabulary, rules, share);
}

Result<std::unique_ptr<Dataset>> Open(const ArraysSpec& source, const NormalizeSpec& normalize,
                                      const BadRecordRules& rules, NodeShare* share) {
  GACCD_RETURN_IF_ERROR(CheckNotNormalized(normalize));
  std::vector<NamedArray> arrays;
  for (const NamedArraySpec& spec : source.array) {
    GACCD_ASSIGN_OR_RETURN(Array array, LoadNpy(spec.path));
    arrays.push_back({spec.name, std::move(array), spec.vocabulary});
  }
  return MakeArraysDataset(std::move(arrays), rules, share);
}

// "/data/x" stays; "x" is that of the current folder or, where there is none, of the job's folder.
Status Locate(const std::string& job_folder, std::string* path) {
  if (path->starts_with('/') || ::access(path->c_str(), F_OK) == 0) return Status::Ok();
  const std::string why = std::strerror(errno);
  const std::string beside = StrCat(job_folder, "/", *path);
  if (!job_folder.empty() && ::access(beside.c_str(), F_OK) == 0) {
    *path = beside;
    return Status::Ok();
  }
  std::error_code none;
  const auto full = [&none](const std::string& folder) {
    return std::filesystem::weakly_canonical(folder, none).string();
  };
  const std::string here = full(".");
  const std::string there = job_folder.empty() ? here : full(job_folder);
  return {ErrorKind::kIo, StrCat("cannot open the data file '", *path, "' in the current folder ",
                                 here, there == here ? "" : " or in the job's folder ",
                                 there == here ? "" : there, ": ", why)};
}

// The files of a source that are given.
std::vector<std::string*> FilesOf(SourceSpec& source) {
  using Files = std::vector<std::string*>;
  return std::visit(Overloaded{
                        [](IdxSpec& idx) {
                          return Files{&idx.images, &idx.labels};
                        },
                        [](NpySpec& npy) {
                          Files files{&npy.features, &npy.targets};
                          if (npy.weights) files.push_back(&*npy.weights);
                          return files;
                        },
                        [](SyntheticSpec&) { return Files{}; },
                        [](TokensSpec& tokens) {
                          Files files{&tokens.tokens};
                          for (auto* path : {&tokens.lengths, &tokens.segments, &tokens.labels,
                                             &tokens.weights}) {
                            if (*path) files.push_back(&**path);
                          }
                          return files;
                        },
                        [](StreamSpec& stream) { return Files{&stream.path}; },
                        [](ArraysSpec& named) {
                          Files paths;
                          for (NamedArraySpec& array : named.array) paths.push_back(&array.path);
                          return paths;
                        },
                    },
                    source);
}

Result<SourceSpec> Located(SourceSpec source, const std::string& job_folder) {
  for (std::string* path : FilesOf(source)) GACCD_RETURN_IF_ERROR(Locate(job_folder, path));
  return source;
}

Status CheckSameSpec(const SampleSpec& train, const SampleSpec& eval) {
  if (train == eval) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("the evaluation data differs from the training data: expected samples of ",
                 Describe(train), ", found ", Describe(eval))};
}

}  // namespace

Result<std::unique_ptr<Dataset>> OpenDataset(const SourceSpec& source,
                                             const NormalizeSpec& normalize,
                                             const BadRecordRules& rules, NodeShare* share) {
  return std::visit([&](const auto& kind) { return Open(kind, normalize, rules, share); }, source);
}

Result<TrainingData> OpenTrainingData(const Job& job, const BadRecordRules& rules,
                                      NodeShare* share) {
  const DataSpec& data = job.data;
  TrainingData opened;
  GACCD_ASSIGN_OR_RETURN(const SourceSpec train, Located(data.train, job.folder));
  GACCD_ASSIGN_OR_RETURN(opened.train, OpenDataset(train, data.normalize, rules, share));
  if (!data.eval) return opened;
  BadRecordRules eval_rules = rules;
  eval_rules.used += std::ssize(opened.train->bad_records());
  eval_rules.leave_out = true;
  GACCD_ASSIGN_OR_RETURN(const SourceSpec eval, Located(*data.eval, job.folder));
  GACCD_ASSIGN_OR_RETURN(opened.eval, OpenDataset(eval, data.normalize, eval_rules, share));
  GACCD_RETURN_IF_ERROR(CheckSameSpec(opened.train->spec(), opened.eval->spec()));
  return opened;
}

}  // namespace gaccd
