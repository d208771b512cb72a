// Replica: updates whose graphs have sums over the update and run segment by segment, and running
// statistics.
#include <algorithm>
#include <functional>

#include "collectives/base/strings.h"
#include "daemon/ops/norm/batch_norm.h"
#include "daemon/replica/replica.h"
#include "daemon/tensor/reproducible_sum.h"

namespace gaccd {

std::int64_t Replica::KeptBatchBytes(const ReplicaOptions& options) const {
  return options.largest_micro_batch() * SampleBytes(model_.sample());
}

Status Replica::PrepareSegments(const ReplicaOptions& options) {
  for (std::int64_t i = 0; i < options.micro_steps_per_update; ++i) {
    kept_.push_back({BatchMemory(model_.sample(), options.largest_micro_batch()), {}});
  }
  if (graphs_.all<TrainingGraph>().empty()) return Status::Ok();  // only evaluations
  const Executor& executor = *graphs_.all<TrainingGraph>().begin()->second.executor;
  if (const auto found = static_cast<std::int64_t>(executor.update_sums());
      found != model_.update_sums()) {
    return {ErrorKind::kInternal, StrCat("expected ", model_.update_sums(),
                                         " sums over the update in a graph, found ", found)};
  }
  for (std::size_t sum = 0; sum < executor.update_sums(); ++sum) {
    update_sums_.emplace_back(executor.update_sum(sum).elements);
    if (options.any_split) bins_.emplace_back(kDoubleBins * update_sums_.back().size());
  }
  return Status::Ok();
}

void Replica::BeginSegments() {
  for (std::vector<double>& sum : update_sums_) std::ranges::fill(sum, 0.0);
  for (std::vector<double>& sum : bins_) std::ranges::fill(sum, 0.0);
}

void Replica::UpdateSumReduced(std::int64_t sum) {
  if (options_.any_split) ReadBins(update_sum(sum), update_sums_[static_cast<std::size_t>(sum)]);
}

Status Replica::CheckPlace(std::int64_t micro_batch, std::int64_t segment) const {
  if (micro_batch >= 0 && micro_batch < std::ssize(kept_) && segment >= 0 &&
      segment <= model_.update_sums()) {
    return Status::Ok();
  }
  return {ErrorKind::kInternal,
          StrCat("expected a micro-batch below ", kept_.size(), " and a segment up to ",
                 model_.update_sums(), ", found ", micro_batch, " and ", segment)};
}

Result<LossSums> Replica::RunSegment(const BatchView& batch, std::int64_t micro_batch,
                                     std::int64_t segment, float weight) {
  GACCD_RETURN_IF_ERROR(allocation_error_);
  GACCD_RETURN_IF_ERROR(CheckPlace(micro_batch, segment));
  KeptBatch& kept = kept_[static_cast<std::size_t>(micro_batch)];
  if (segment == 0) kept.batch = kept.memory.Copy(model_.sample(), batch);
  const bool first = micro_batch == 0;
  if (kept.batch.samples == 0) {
    if (first && segment == 0) ClearGradients();
    return LossSums{};
  }
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<TrainingGraph>(kept.batch.size()));
  const auto& [ids, inputs, executor] = *graph;
  weight_ = weight;
  executor->Attach(arena_.data(), scratch_.data(),
                   kept_arena_.data() + graphs_.kept_bytes() * micro_batch);
  Bind(*executor, inputs, kept.batch);
  const auto place = [&](std::int64_t sum) {
    return executor->update_sum(static_cast<std::size_t>(sum));
  };
  if (segment > 0) {
    std::ranges::copy(update_sums_[static_cast<std::size_t>(segment - 1)], place(segment - 1).all);
  }
  GACCD_RETURN_IF_ERROR(
      executor->RunSegment(static_cast<std::size_t>(segment), first || !gradient_bins_.empty()));
  if (!gradient_bins_.empty()) AddSegmentToBins(*executor, segment);
  if (segment < model_.update_sums()) {
    std::vector<double>& sum = update_sums_[static_cast<std::size_t>(segment)];
    const std::span<const double> own(place(segment).own, sum.size());
    if (options_.any_split) {
      AddToBins(own, bins_[static_cast<std::size_t>(segment)]);
    } else {
      std::ranges::transform(sum, own, sum.begin(), std::plus());
    }
    return LossSums{};
  }
  return ReadSums(*graph, kept.batch.samples);
}

// Several segments may write the gradient of a parameter, all micro-batches in one segment before
// the next one.
void Replica::AddSegmentToBins(const Executor& executor, std::int64_t segment) {
  executor.ForEachGradient(static_cast<std::size_t>(segment), [this](std::size_t parameter) {
    AddGradientToBins(parameter);
    const FlatEntry& entry = model_.layout().entries()[parameter];
    std::ranges::fill(gradients_.subspan(static_cast<std::size_t>(entry.offset),
                                         static_cast<std::size_t>(entry.elements)),
                      0.0F);
  });
}

void Replica::ForEachRunning(auto&& call) {
  if (graphs_.all<TrainingGraph>().empty()) return;
  const auto& graph = graphs_.all<TrainingGraph>().begin()->second;
  const auto buffer = [this](nn::ParameterIndex index) {
    return parameters_.data() + model_.layout().entries()[index].offset;
  };
  part_sums_.resize(graph.ids.running.size());
  for (std::size_t layer = 0; layer < part_sums_.size(); ++layer) {
    const nn::RunningUpdate& running = graph.ids.running[layer];
    const bool of_update = running.sums != nn::kNoValue;
    std::span<const double> sums = part_sums_[layer];
    if (of_update) sums = update_sums_[graph.executor->FindUpdateSum(running.sums)];
    if (running.run_size > 0) {
      const std::int64_t channels = model_.layout().entries()[running.mean].elements;
      part_sums_[layer].resize(static_cast<std::size_t>(2 * channels + 1));
      AddRuns(sums, part_sums_[layer]);
      sums = part_sums_[layer];
    }
    const bool whole = of_update && running.run_size == 0;
    call(whole ? NormGroup::kUpdate : NormGroup::kMicroBatch, sums, running.momentum,
         RunningStatistics{.mean = buffer(running.mean),
                           .variance = buffer(running.variance),
                           .updates = buffer(running.updates)});
  }
}

void Replica::MoveMicroStatistics() {
  if (model_.micro_values() == 0 || graphs_.all<TrainingGraph>().empty()) return;
  const auto& layers = graphs_.all<TrainingGraph>().begin()->second.ids.running;
  part_sums_.resize(layers.size());
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const nn::RunningUpdate& running = layers[layer];
    if (running.sums != nn::kNoValue) continue;
    part_sums_[layer].clear();
    for (const auto index : {running.mean, running.variance, running.updates}) {
      const FlatEntry& entry = model_.layout().entries()[index];
      const auto place = gradients_.subspan(static_cast<std::size_t>(entry.offset),
                                            static_cast<std::size_t>(entry.elements));
      part_sums_[layer].insert(part_sums_[layer].end(), place.begin(), place.end());
      std::ranges::fill(place, 0.0F);
    }
  }
}

void Replica::AddToRunningStatistics() { ForEachRunning(AddToRunning); }

bool Replica::RunningStatisticsStayFinite() {
  bool finite = true;
  ForEachRunning([&](const auto&... of) { finite = finite && StaysFinite(of...); });
  return finite;
}

}  // namespace gaccd
