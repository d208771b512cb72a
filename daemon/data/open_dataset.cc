#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/data/dataset.h"
#include "daemon/data/formats/array.h"
#include "daemon/data/formats/tokens.h"
#include "daemon/data/masked_tokens.h"
#include "daemon/data/mixed_samples.h"
#include "daemon/data/prepared.h"
#include "daemon/data/sample_order.h"
#include "daemon/data/several_files.h"
#include "daemon/data/sources.h"

namespace gaccd {

namespace {

Result<Array> LocateAndLoadNpy(const OpenContext& opening, const std::string& path) {
  GACCD_ASSIGN_OR_RETURN(const std::string file, opening.Locate(path));
  return LoadNpy(file);
}

Result<std::optional<Array>> LoadIfGiven(const OpenContext& opening,
                                         const std::optional<std::string>& path) {
  if (!path) return std::optional<Array>();
  GACCD_ASSIGN_OR_RETURN(Array array, LocateAndLoadNpy(opening, *path));
  return std::optional(std::move(array));
}

// Tokens are ids, and named arrays are used unchanged.
Status CheckNotNormalized(const NormalizeSpec& normalize) {
  if (normalize.scale == 1 && normalize.mean == 0 && normalize.std == 1) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("data.normalize: is for features of idx, npy, csv, images and synthetic; expected "
                 "scale 1, mean 0 and std 1, found ",
                 normalize.scale, ", ", normalize.mean, " and ", normalize.std)};
}

// Ignores cuts: batches of one set may be cut and those of the other not.
Status CheckSameSpec(SampleSpec train, SampleSpec eval) {
  train.cuts.clear();
  eval.cuts.clear();
  if (train == eval) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("the evaluation data differs from the training data: expected samples of ",
                 Describe(train), ", found ", Describe(eval))};
}

// Also wraps the evaluation data, so that both have the same spec; its samples are not mixed.
Status MixIfConfigured(const Job& job, TrainingData* opened) {
  const DataSpec& data = job.data;
  if (!data.mixup && !data.cutmix) return Status::Ok();
  const SampleOrder order(job.seed, opened->train->size(), data.shuffle);
  GACCD_ASSIGN_OR_RETURN(opened->train, MixSamples(std::move(opened->train), data, order));
  if (opened->eval == nullptr) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(opened->eval, MixSamples(std::move(opened->eval), data, order));
  return Status::Ok();
}

}  // namespace

Result<std::string> OpenContext::Locate(const std::string& path) const {
  if (path.starts_with('/') || ::access(path.c_str(), F_OK) == 0) return path;
  const std::string why = std::strerror(errno);
  std::string relative = StrCat(folder, "/", path);
  if (!folder.empty() && ::access(relative.c_str(), F_OK) == 0) return relative;
  std::error_code none;
  const auto full = [&none](const std::string& name) {
    return std::filesystem::weakly_canonical(name, none).string();
  };
  const std::string here = full(".");
  const std::string there = folder.empty() ? here : full(folder);
  return Status(
      ErrorKind::kIo,
      StrCat("cannot open the data file '", path, "' in the current folder ", here,
             there == here ? "" : " or in the job's folder ", there == here ? "" : there, ": ", why,
             path.starts_with('~') ? "; ~ is not expanded: write the full path" : ""));
}

OpenedDataset OpenSource(const IdxSpec& source, const OpenContext& opening) {
  if (source.classes < 1) {
    return Status(ErrorKind::kConfig,
                  StrCat("idx: expected at least 1 class, found ", source.classes));
  }
  GACCD_ASSIGN_OR_RETURN(const std::string images, opening.Locate(source.images));
  GACCD_ASSIGN_OR_RETURN(const std::string labels, opening.Locate(source.labels));
  GACCD_ASSIGN_OR_RETURN(Array features, LoadIdx(images, opening.share));
  GACCD_ASSIGN_OR_RETURN(Array targets, LoadIdx(labels, opening.share));
  return MakeArrayDataset(std::move(features), std::move(targets), source.classes,
                          opening.normalize, opening.rules, opening.share);
}

OpenedDataset OpenSource(const NpySpec& source, const OpenContext& opening) {
  if (source.classes < 0) {
    return Status(ErrorKind::kConfig,
                  StrCat("npy: expected 0 classes or more, found ", source.classes));
  }
  GACCD_ASSIGN_OR_RETURN(Array features, LocateAndLoadNpy(opening, source.features));
  GACCD_ASSIGN_OR_RETURN(Array targets, LocateAndLoadNpy(opening, source.targets));
  GACCD_ASSIGN_OR_RETURN(std::optional<Array> weights, LoadIfGiven(opening, source.weights));
  return MakeArrayDataset(std::move(features), std::move(targets), source.classes,
                          opening.normalize, opening.rules, opening.share, std::move(weights));
}

OpenedDataset OpenSource(const SyntheticSpec& source, const OpenContext& opening) {
  return MakeSynthetic(source, opening.normalize);
}

OpenedDataset OpenSource(const TokensSpec& source, const OpenContext& opening) {
  GACCD_RETURN_IF_ERROR(CheckNotNormalized(opening.normalize));
  TokenArrays arrays;
  GACCD_ASSIGN_OR_RETURN(arrays.tokens, LocateAndLoadNpy(opening, source.tokens));
  GACCD_ASSIGN_OR_RETURN(arrays.lengths, LoadIfGiven(opening, source.lengths));
  GACCD_ASSIGN_OR_RETURN(arrays.segments, LoadIfGiven(opening, source.segments));
  GACCD_ASSIGN_OR_RETURN(arrays.labels, LoadIfGiven(opening, source.labels));
  GACCD_ASSIGN_OR_RETURN(arrays.weights, LoadIfGiven(opening, source.weights));
  GACCD_RETURN_IF_ERROR(CheckPrepared(arrays.tokens, source.vocabulary, opening.share));
  for (const auto& array : {arrays.lengths, arrays.segments, arrays.labels, arrays.weights}) {
    if (!array) continue;
    GACCD_RETURN_IF_ERROR(CheckPrepared(*array, source.vocabulary, opening.share));
  }
  return MakeTokenDataset(std::move(arrays),
                          {.vocabulary = source.vocabulary,
                           .classes = source.classes,
                           .segment_types = source.segment_types,
                           .ignored_label = static_cast<std::int32_t>(source.ignored_label)},
                          opening.rules, opening.share);
}

OpenedDataset OpenSource(const StreamSpec& source, const OpenContext& opening) {
  GACCD_RETURN_IF_ERROR(CheckNotNormalized(opening.normalize));
  GACCD_ASSIGN_OR_RETURN(const Array stream, LocateAndLoadNpy(opening, source.path));
  GACCD_RETURN_IF_ERROR(CheckPrepared(stream, source.vocabulary, opening.share));
  return MakeStreamDataset(stream, source.length, source.vocabulary, opening.rules, opening.share);
}

OpenedDataset OpenSource(const ArraysSpec& source, const OpenContext& opening) {
  GACCD_RETURN_IF_ERROR(CheckNotNormalized(opening.normalize));
  std::vector<NamedArray> arrays;
  for (const NamedArraySpec& spec : source.array) {
    GACCD_ASSIGN_OR_RETURN(Array array, LocateAndLoadNpy(opening, spec.path));
    arrays.push_back({spec.name, std::move(array), spec.vocabulary});
  }
  return MakeArraysDataset(std::move(arrays), source.classes, opening.rules, opening.share);
}

namespace {

OpenedDataset OpenFiles(const SourceSpec& source, const OpenContext& opening) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<SourceSpec> sources,
                         ExpandPatterns(source, opening.folder));
  BadRecordRules own = opening.rules;
  const OpenContext each{opening.normalize, own, opening.share, opening.folder,
                         opening.column_names};
  std::vector<std::unique_ptr<Dataset>> parts;
  for (const SourceSpec& file : sources) {
    GACCD_ASSIGN_OR_RETURN(
        auto part, std::visit([&](const auto& kind) { return OpenSource(kind, each); }, file));
    own.used += std::ssize(part->bad_records());
    parts.push_back(std::move(part));
  }
  GACCD_ASSIGN_OR_RETURN(auto dataset, JoinDatasets(std::move(parts)));
  const auto* tokens = std::get_if<TokensSpec>(&source);
  if (tokens == nullptr || !tokens->masked) return dataset;
  return MakeMaskedDataset(std::move(dataset), *tokens->masked);
}

}  // namespace

Result<std::unique_ptr<Dataset>> OpenDataset(const SourceSpec& source,
                                             const NormalizeSpec& normalize,
                                             const BadRecordRules& rules, NodeShare* share,
                                             const std::string& folder,
                                             std::vector<std::string> column_names) {
  return OpenFiles(source, {normalize, rules, share, folder, &column_names});
}

LabelCounts CountLabels(const Dataset& data) {
  constexpr std::int64_t kPart = 4096;
  std::vector<std::int64_t> indices;
  LabelCounts counts;
  for (std::int64_t first = 0; first < data.size(); first += kPart) {
    indices.resize(static_cast<std::size_t>(std::min(kPart, data.size() - first)));
    std::iota(indices.begin(), indices.end(), first);
    counts += data.CountLabels(indices);
  }
  return counts;
}

SampleSpec MakeBatchSpec(const Job& job, const Dataset& data) {
  SampleSpec spec = data.spec();
  if (!job.batch.group_by_length) spec.cuts.clear();
  return spec;
}

Result<TrainingData> OpenTrainingData(const Job& job, const BadRecordRules& rules,
                                      NodeShare* share) {
  const DataSpec& data = job.data;
  TrainingData opened;
  std::vector<std::string> column_names = data.column_name;  // common to both sets
  GACCD_ASSIGN_OR_RETURN(opened.train, OpenFiles(data.train, {data.normalize, rules, share,
                                                              job.folder, &column_names}));
  if (!data.eval) {
    GACCD_RETURN_IF_ERROR(MixIfConfigured(job, &opened));
    return opened;
  }
  BadRecordRules eval_rules = rules;
  eval_rules.used += std::ssize(opened.train->bad_records());
  eval_rules.leave_out = true;
  GACCD_ASSIGN_OR_RETURN(opened.eval, OpenFiles(*data.eval, {data.normalize, eval_rules, share,
                                                             job.folder, &column_names}));
  GACCD_RETURN_IF_ERROR(CheckSameStorage(opened.train->has_integer_features(),
                                         opened.eval->has_integer_features(), "the evaluation data",
                                         "the training data"));
  const SampleSpec& trained = opened.train->spec();
  if (trained.Find("weights") != nullptr && opened.eval->spec().Find("weights") == nullptr) {
    opened.eval_weighted = false;
    opened.eval = WithEqualWeights(std::move(opened.eval), trained);
  }
  GACCD_RETURN_IF_ERROR(CheckSameSpec(opened.train->spec(), opened.eval->spec()));
  GACCD_RETURN_IF_ERROR(MixIfConfigured(job, &opened));
  return opened;
}

namespace {

class EquallyWeighted final : public DerivedDataset {
 public:
  EquallyWeighted(std::unique_ptr<Dataset> plain, const TensorSpec& weights, std::size_t place)
      : DerivedDataset(std::move(plain)), place_(place) {
    spec_.tensors.insert(spec_.tensors.begin() + static_cast<std::ptrdiff_t>(place), weights);
  }

  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    std::array<void*, kMaxTensors> others{};
    const auto end = std::ranges::copy(out.tensors.first(place_), others.begin()).out;
    std::ranges::copy(out.tensors.subspan(place_ + 1), end);
    BatchView rest = out;
    rest.tensors = std::span(others).first(out.tensors.size() - 1);
    base_->Gather(indices, rest);
    const std::int64_t bytes = std::ssize(indices) * RowBytes(spec_.tensors[place_], out.length);
    std::fill_n(out.tensor<float>(place_), static_cast<std::size_t>(bytes) / sizeof(float), 1.0F);
  }

 private:
  std::size_t place_;  // of the weights among the tensors
};

}  // namespace

std::unique_ptr<Dataset> WithEqualWeights(std::unique_ptr<Dataset> plain,
                                          const SampleSpec& weighted) {
  const auto weights = std::ranges::find(weighted.tensors, "weights", &TensorSpec::name);
  const auto place = static_cast<std::size_t>(weights - weighted.tensors.begin());
  const std::size_t last = plain->spec().tensors.size();
  return std::make_unique<EquallyWeighted>(std::move(plain), *weights, std::min(place, last));
}

}  // namespace gaccd
