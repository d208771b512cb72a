#include "daemon/checkpoint/saved_weights.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/checkpoint/load.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/train_state.h"
#include "daemon/optim/optimizer.h"

namespace gaccd {
namespace {

// Replaces the parameters by their averages, the last part of the optimiser's state.
Status ReplaceByAverages(const std::string& folder, const Generation& generation,
                         const Manifest& manifest, const OptimizerSpec& optimizer, Ticks* ticks,
                         std::span<std::byte> parameters) {
  FlatLayout layout;
  for (const ParameterRecord& one : manifest.parameters) {
    GACCD_RETURN_IF_ERROR(layout.Add(one.name, one.shape, one.group, one.frozen).status());
  }
  const OptimizerRanges ranges = OptimizerRanges::Make(layout);
  const std::int64_t state = StateElements(optimizer, ranges.elements());
  if (const Status fits = CheckFits(manifest, layout, state); !fits.ok()) {
    return {ErrorKind::kData, fits.message()};
  }
  const auto at = [](std::int64_t element) {
    return static_cast<std::size_t>(element) * sizeof(float);
  };
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                         ReadBuffer(folder, generation, manifest, kOptimizerBuffer,
                                    at(state - ranges.elements()), ticks));
  const std::span<const std::byte> averages(bytes);
  for (const OptimizerRange& range : ranges.all()) {
    std::ranges::copy(averages.subspan(at(range.state_first), at(range.elements)),
                      parameters.subspan(at(range.first)).begin());
  }
  return Status::Ok();
}

Result<SavedWeights> ReadWeights(const std::string& folder, const Generation& generation, bool raw,
                                 Ticks* ticks) {
  GACCD_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(folder, generation));
  GACCD_ASSIGN_OR_RETURN(Job job, SavedJob(manifest));
  if (raw && !job.optimizer.ema) {
    return Status(ErrorKind::kUsage,
                  StrCat("--raw-weights: ", generation.name(),
                         " has no average of its weights: its run had no optimizer.ema"));
  }
  GACCD_ASSIGN_OR_RETURN(std::vector<std::byte> bytes,
                         ReadBuffer(folder, generation, manifest, kParametersBuffer, 0, ticks));
  // Before the first update there is no average.
  const bool averaged = job.optimizer.ema && !raw && manifest.cursor.optimizer_updates > 0;
  if (averaged) {
    GACCD_RETURN_IF_ERROR(
        ReplaceByAverages(folder, generation, manifest, job.optimizer, ticks, bytes));
  }
  const std::span<const float> values = AsFloats(bytes);
  GACCD_RETURN_IF_ERROR(CheckParametersFinite(manifest, values).WithContext(generation.name()));
  SavedWeights weights{.generation = generation, .job = std::move(job), .averaged = averaged};
  for (const ParameterRecord& parameter : manifest.parameters) {
    const auto first = values.begin() + parameter.offset;
    weights.tensors.push_back(
        {parameter.name, parameter.shape, {first, first + Elements(parameter.shape)}});
  }
  weights.manifest = std::move(manifest);
  return weights;
}

// removed: whether one was removed while it was to be read.
Result<SavedWeights> ReadNewest(const GenerationPlace& place, bool raw, Ticks* ticks,
                                bool* removed) {
  std::vector<std::string> skipped_checkpoints;
  for (const Generation& one : place.generations) {
    if (!one.committed && !place.one) {
      skipped_checkpoints.push_back(one.name() + ": unfinished");
      continue;
    }
    auto weights = ReadWeights(place.folder, one, raw, ticks);
    if (weights.ok()) weights->skipped_checkpoints = std::move(skipped_checkpoints);
    if (weights.ok() || place.one) return weights;
    const ErrorKind kind = weights.status().kind();
    if (kind == ErrorKind::kUsage || kind == ErrorKind::kConfig) return weights;
    if (kind == ErrorKind::kUnavailable) return weights;  // of a tick
    skipped_checkpoints.push_back(StrCat(one.name(), ": ", weights.status().message()));
    *removed |= !place.one && !IsCommitted(place.folder, one);
  }
  if (place.generations.empty()) {
    return Status(
        ErrorKind::kData,
        StrCat("'", place.folder,
               "' holds no checkpoint: nothing was saved, as with --save-every-seconds=0"));
  }
  std::string why;
  for (const std::string& note : skipped_checkpoints) why += "\n" + note;
  return Status(ErrorKind::kData,
                StrCat("'", place.folder, "' holds no checkpoint that is intact", why));
}

}  // namespace

Result<SavedWeights> ReadSavedWeights(const GenerationPlace& place, bool raw, Ticks* ticks) {
  constexpr int kMaxTries = 3;
  bool removed = false;
  auto weights = ReadNewest(place, raw, ticks, &removed);
  // A run that is active has newer ones by now.
  for (int tries = 1; !weights.ok() && removed && tries < kMaxTries; ++tries) {
    removed = false;
    GACCD_ASSIGN_OR_RETURN(auto all, ListGenerations(place.folder));
    weights =
        ReadNewest({.folder = place.folder, .generations = std::move(all)}, raw, ticks, &removed);
  }
  return weights;
}

std::string OtherBestText(const GenerationPlace& place, const SavedWeights& weights) {
  if (place.one || place.generations.size() == 1 || !weights.job.evaluation.keep_best) return {};
  const std::optional<Generation> best = FindBest(place.folder, place.generations);
  if (!best || *best == weights.generation) return {};
  return StrCat("the best evaluation was that after update ", best->step,
                "; eval, predict and ckpt export use it with --best");
}

}  // namespace gaccd
