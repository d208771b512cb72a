#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <variant>

#include "collectives/base/strings.h"
#include "daemon/data/array.h"
#include "daemon/data/idx.h"
#include "daemon/data/npy.h"
#include "daemon/data/synthetic.h"

namespace gaccd {
namespace {

Result<std::unique_ptr<Dataset>> Open(const IdxSource& source, const NormalizeSpec& normalize,
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

Result<std::unique_ptr<Dataset>> Open(const NpySource& source, const NormalizeSpec& normalize,
                                      const BadRecordRules& rules, NodeShare* share) {
  if (source.classes < 0) {
    return Status(ErrorKind::kConfig,
                  StrCat("npy: expected 0 classes or more, found ", source.classes));
  }
  GACCD_ASSIGN_OR_RETURN(Array features, LoadNpy(source.features));
  GACCD_ASSIGN_OR_RETURN(Array targets, LoadNpy(source.targets));
  if (targets.dtype == DType::kU8) {
    return Status(ErrorKind::kData,
                  StrCat(source.targets,
                         ": expected i32 or i64 labels, or f32 targets, found u8; "
                         "save array.astype('int64')"));
  }
  return MakeArrayDataset(std::move(features), std::move(targets), source.classes, normalize, rules,
                          share);
}

Result<std::unique_ptr<Dataset>> Open(const SyntheticSource& source, const NormalizeSpec& normalize,
                                      const BadRecordRules& /*rules*/, NodeShare* /*share*/) {
  return MakeSynthetic(source, normalize);
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

Result<SourceSpec> Located(SourceSpec source, const std::string& job_folder) {
  if (auto* idx = std::get_if<IdxSource>(&source)) {
    GACCD_RETURN_IF_ERROR(Locate(job_folder, &idx->images));
    GACCD_RETURN_IF_ERROR(Locate(job_folder, &idx->labels));
  } else if (auto* npy = std::get_if<NpySource>(&source)) {
    GACCD_RETURN_IF_ERROR(Locate(job_folder, &npy->features));
    GACCD_RETURN_IF_ERROR(Locate(job_folder, &npy->targets));
  }
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

Result<TrainingData> OpenTrainingData(const DataSpec& data, const BadRecordRules& rules,
                                      NodeShare* share) {
  TrainingData opened;
  GACCD_ASSIGN_OR_RETURN(const SourceSpec train, Located(data.train, data.job_folder));
  GACCD_ASSIGN_OR_RETURN(opened.train, OpenDataset(train, data.normalize, rules, share));
  if (!data.eval) return opened;
  BadRecordRules eval_rules = rules;
  eval_rules.used += std::ssize(opened.train->bad_records());
  eval_rules.leave_out = true;
  GACCD_ASSIGN_OR_RETURN(const SourceSpec eval, Located(*data.eval, data.job_folder));
  GACCD_ASSIGN_OR_RETURN(opened.eval, OpenDataset(eval, data.normalize, eval_rules, share));
  GACCD_RETURN_IF_ERROR(CheckSameSpec(opened.train->spec(), opened.eval->spec()));
  return opened;
}

}  // namespace gaccd
