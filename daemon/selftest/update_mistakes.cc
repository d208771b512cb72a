#include "daemon/selftest/update_mistakes.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "daemon/engine/contrastive_window.h"
#include "daemon/ops/norm/batch_norm.h"
#include "daemon/replica/prepared_graphs.h"
#include "daemon/replica/replica.h"

namespace gaccd {

namespace {

// The sizes for which a replica of one rank is prepared in an update of the plan.
ReplicaOptions MicroBatchSizes(const Plan& plan, int rank) {
  return {.micro_batches = plan.MicroBatchSizes(rank),
          .micro_steps_per_update = plan.accum_steps(),
          .effective_batch = plan.effective_batch(),
          .recompute = plan.request().recompute};
}

// Multiplies every second value by `factor`: the cosines of many networks do not change if all
// parameters have a common factor.
Status SetParameters(Replica& replica, std::span<const float> parameters, float factor) {
  const std::span<float> to = replica.parameters();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = parameters[i] * (i % 2 == 0 ? 1 : factor);
  return replica.ParametersChanged();
}

}  // namespace

std::string_view Name(ContrastiveMistake mistake) {
  switch (mistake) {
    case ContrastiveMistake::kNone:
      return "gaccd";
    case ContrastiveMistake::kWorldFactor:
      return "world-size factor";
    case ContrastiveMistake::kLocalNegatives:
      return "local negatives only";
    case ContrastiveMistake::kScaleKFold:
      return "temperature k-fold";
    case ContrastiveMistake::kStaleRows:
      return "stale features";
    case ContrastiveMistake::kLastOnly:
      return "last micro-batch only";
  }
  return "";
}

bool HasEffect(ContrastiveMistake mistake, const Plan& plan) {
  switch (mistake) {
    case ContrastiveMistake::kNone:
      return false;
    case ContrastiveMistake::kWorldFactor:
    case ContrastiveMistake::kLocalNegatives:
      return plan.world() > 1;
    case ContrastiveMistake::kStaleRows:
      return true;
    case ContrastiveMistake::kScaleKFold:
      return plan.accum_steps() > 1;
    case ContrastiveMistake::kLastOnly:
      return plan.accum_steps() > 1 && plan.ranks_hi_samples() > 1;
  }
  return false;
}

Result<std::vector<float>> ContrastiveGradient(Communicator& comm, const Model& model,
                                               std::span<const float> parameters, const Plan& plan,
                                               Prefetcher& batches, ContrastiveMistake mistake) {
  const auto is = [mistake](ContrastiveMistake other) { return mistake == other; };
  GACCD_ASSIGN_OR_RETURN(const HostBuffer memory,
                         HostBuffer::Allocate(parameters.size_bytes(), "gradients"));
  const std::span gradients(reinterpret_cast<float*>(memory.data()), parameters.size());
  GACCD_ASSIGN_OR_RETURN(auto replica,
                         Replica::Create(model, gradients, MicroBatchSizes(plan, comm.rank())));
  const ContrastiveModel loss = *model.contrastive();
  ContrastiveWindow window(loss, plan.effective_batch(), plan.Load(comm.rank()));

  GACCD_RETURN_IF_ERROR(
      SetParameters(*replica, parameters, is(ContrastiveMistake::kStaleRows) ? 0.99F : 1.0F));
  for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
    const BatchView* batch = batches.Next();
    GACCD_RETURN_IF_ERROR(replica->Encode(*batch, window.Append(batch->samples)));
  }
  GACCD_RETURN_IF_ERROR(SetParameters(*replica, parameters, 1));

  const auto scale = static_cast<std::size_t>(loss.log_scale);
  const auto alone = MakeSingle();
  Communicator& compared = is(ContrastiveMistake::kLocalNegatives) ? *alone : comm;
  GACCD_RETURN_IF_ERROR(window.ComputeContrastiveLoss(compared, double{parameters[scale]}));
  const std::int64_t filled = plan.FilledSteps(comm.rank());
  for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
    const BatchView* batch = batches.Next();
    GACCD_ASSIGN_OR_RETURN(const float* rows, window.Next(batch->samples));
    const bool first = step == 0 || (is(ContrastiveMistake::kLastOnly) && step < filled);
    GACCD_RETURN_IF_ERROR(replica->Replay(*batch, rows, first));
  }
  const bool k_fold = is(ContrastiveMistake::kScaleKFold);
  gradients[scale] = static_cast<float>(window.sums().log_scale_gradient *
                                        static_cast<double>(k_fold ? plan.accum_steps() : 1));
  float factor = 1;
  if (is(ContrastiveMistake::kWorldFactor)) factor = static_cast<float>(comm.size());
  if (is(ContrastiveMistake::kLocalNegatives)) {
    factor =
        static_cast<float>(plan.Load(comm.rank())) / static_cast<float>(plan.effective_batch());
  }
  for (float& gradient : gradients) gradient *= factor;
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(gradients), View(gradients)));
  return std::vector<float>(gradients.begin(), gradients.end());
}

namespace {

bool IsUpdateNorm(const nn::RunningUpdate& norm) { return norm.run_size == 0; }

template <typename T>
std::span<T> EntryValues(const FlatEntry& entry, std::span<T> values) {
  return values.subspan(static_cast<std::size_t>(entry.offset),
                        static_cast<std::size_t>(entry.elements));
}

// Those of scale and shift of a batch norm that are trained.
std::vector<const FlatEntry*> TrainedEntries(const nn::RunningUpdate& norm,
                                             const FlatLayout& layout) {
  std::string prefix = layout.entries()[norm.mean].name;
  prefix.resize(prefix.size() - std::string_view("running_mean").size());
  std::vector<const FlatEntry*> trained;
  for (const char* name : {"weight", "bias"}) {
    const FlatEntry* entry = layout.Find(prefix + name);
    if (entry != nullptr && !entry->frozen) trained.push_back(entry);
  }
  return trained;
}

double PlannedSamples(const Plan& plan) {
  return static_cast<double>(plan.world() * plan.accum_steps() * plan.request().micro_batch);
}

// One rank's part of an update with a mistake.
class FaultyUpdate {
 public:
  FaultyUpdate(Communicator& comm, const Model& model, const Plan& plan, StatisticsMistake mistake,
               Replica& replica)
      : comm_(comm),
        model_(model),
        plan_(plan),
        mistake_(mistake),
        replica_(replica),
        running_(model.running_statistics()),
        weight_(static_cast<float>(
            1.0 / static_cast<double>(plan.effective_batch() * model.predictions()))) {}

  Status Run(Prefetcher& batches) {
    const std::int64_t steps = plan_.accum_steps();
    if (mistake_ != StatisticsMistake::kOwnMicroBatch) return RunSteps(batches, 0, steps);
    for (std::int64_t step = 0; step < steps; ++step) {
      GACCD_RETURN_IF_ERROR(RunSteps(batches, step, step + 1));
    }
    return Status::Ok();
  }

  // Sums the gradients over the ranks.
  Status Reduce() {
    const std::span<float> gradients = replica_.gradients();
    if (mistake_ == StatisticsMistake::kEveryRank) {
      for (const nn::RunningUpdate& norm : running_) {
        for (const FlatEntry* entry : TrainedEntries(norm, model_.layout())) {
          const auto view = View(EntryValues(*entry, gradients));
          GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(view, view));
        }
      }
    }
    return comm_.AllReduceSum(View(gradients), View(gradients));
  }

  // RunningValues() after Run(); empty for mistakes that do not affect them.
  std::vector<float> Running() {
    const bool inverted = mistake_ == StatisticsMistake::kInvertedMomentum;
    if (!inverted && mistake_ != StatisticsMistake::kRunningEachStep) return {};
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (!inverted && IsUpdateNorm(running_[i])) continue;  // done by RunStep()
      Add(replica_.update_sum(static_cast<std::int64_t>(i)), running_[i],
          inverted ? 1 - running_[i].momentum : running_[i].momentum);
    }
    return RunningValues(model_, replica_.parameters());
  }

 private:
  Status RunSteps(Prefetcher& batches, std::int64_t first, std::int64_t last) {
    replica_.BeginSegments();
    for (std::int64_t segment = 0; segment <= model_.update_sums(); ++segment) {
      for (std::int64_t step = first; step < last; ++step) {
        const BatchView batch = segment == 0 ? *batches.Next() : BatchView{};
        GACCD_RETURN_IF_ERROR(RunStep(batch, step, segment));
      }
      if (segment < model_.update_sums()) GACCD_RETURN_IF_ERROR(Sum(segment));
    }
    return Status::Ok();
  }

  Status RunStep(const BatchView& batch, std::int64_t step, std::int64_t segment) {
    if (mistake_ != StatisticsMistake::kRunningEachStep || !IsUpdateStatistics(segment)) {
      return replica_.RunSegment(batch, step, segment, weight_).status();
    }
    const std::span<double> sum = replica_.update_sum(segment);
    std::vector<double> own(sum.begin(), sum.end());
    GACCD_RETURN_IF_ERROR(replica_.RunSegment(batch, step, segment, weight_).status());
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = sum[i] - own[i];
    GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(View(std::span(own)), View(std::span(own))));
    const nn::RunningUpdate& norm = running_[static_cast<std::size_t>(segment)];
    Add(own, norm, norm.momentum);
    return Status::Ok();
  }

  // Sums the statistics after a segment, with the mistake.
  Status Sum(std::int64_t segment) {
    const std::span<double> sum = replica_.update_sum(segment);
    const bool of_gradient = !IsStatistics(segment);
    if (mistake_ == StatisticsMistake::kConstant && of_gradient) std::ranges::fill(sum, 0.0);
    const bool own = mistake_ == StatisticsMistake::kOwnRank ||
                     mistake_ == StatisticsMistake::kOwnMicroBatch ||
                     (mistake_ == StatisticsMistake::kOwnGradient && of_gradient);
    if (!own) GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(View(sum), View(sum)));
    if (mistake_ == StatisticsMistake::kPlannedCount && IsUpdateStatistics(segment)) {
      sum.back() *= PlannedSamples(plan_) / static_cast<double>(plan_.effective_batch());
    }
    return Status::Ok();
  }

  [[nodiscard]] bool IsStatistics(std::int64_t segment) const {
    return segment < std::ssize(running_);
  }
  [[nodiscard]] bool IsUpdateStatistics(std::int64_t segment) const {
    return IsStatistics(segment) && IsUpdateNorm(running_[static_cast<std::size_t>(segment)]);
  }
  void Add(std::span<const double> sums, const nn::RunningUpdate& norm, double momentum) {
    const auto buffer = [&](nn::ParameterIndex index) {
      return EntryValues(model_.layout().entries()[index], replica_.parameters()).data();
    };
    const RunningStatistics running{.mean = buffer(norm.mean),
                                    .variance = buffer(norm.variance),
                                    .updates = buffer(norm.updates)};
    if (IsUpdateNorm(norm)) return AddToRunning(NormGroup::kUpdate, sums, momentum, running);
    const std::int64_t channels = model_.layout().entries()[norm.mean].elements;
    std::vector<double> total(static_cast<std::size_t>(2 * channels + 1));
    AddRuns(sums, total);
    AddToRunning(NormGroup::kMicroBatch, total, momentum, running);
  }

  Communicator& comm_;
  const Model& model_;
  const Plan& plan_;
  StatisticsMistake mistake_;
  Replica& replica_;
  // In the order of the sums: statistics first, then their gradients.
  std::span<const nn::RunningUpdate> running_;
  float weight_;
};

}  // namespace

std::string_view Name(StatisticsMistake mistake) {
  switch (mistake) {
    case StatisticsMistake::kOwnRank:
      return "statistics of a rank";
    case StatisticsMistake::kOwnMicroBatch:
      return "of a micro-batch";
    case StatisticsMistake::kPlannedCount:
      return "with the planned count";
    case StatisticsMistake::kConstant:
      return "as constants";
    case StatisticsMistake::kOwnGradient:
      return "gradient of a rank";
    case StatisticsMistake::kEveryRank:
      return "added by every rank";
    case StatisticsMistake::kRunningEachStep:
      return "running, each micro-step";
    case StatisticsMistake::kInvertedMomentum:
      return "inverted momentum";
  }
  return "";
}

bool HasEffect(StatisticsMistake mistake, const Plan& plan, const Model& model) {
  const std::span<const nn::RunningUpdate> running = model.running_statistics();
  const bool has_gradient = model.update_sums() > std::ssize(running);
  switch (mistake) {
    case StatisticsMistake::kOwnRank:
      return plan.world() > 1;
    case StatisticsMistake::kOwnMicroBatch:
      return plan.world() > 1 || plan.accum_steps() > 1;
    case StatisticsMistake::kPlannedCount:
      return std::ranges::any_of(running, IsUpdateNorm) &&
             PlannedSamples(plan) != static_cast<double>(plan.effective_batch());
    case StatisticsMistake::kConstant:
      return has_gradient;
    case StatisticsMistake::kOwnGradient:
      return plan.world() > 1 && has_gradient;
    case StatisticsMistake::kEveryRank:
      return plan.world() > 1 && std::ranges::any_of(running, [&](const auto& norm) {
               return !TrainedEntries(norm, model.layout()).empty();
             });
    case StatisticsMistake::kRunningEachStep:
      return std::ranges::any_of(running, IsUpdateNorm) && plan.accum_steps() > 1;
    case StatisticsMistake::kInvertedMomentum:
      return std::ranges::any_of(running, [](const auto& norm) { return norm.momentum != 0.5; });
  }
  return false;
}

std::vector<float> RunningValues(const Model& model, std::span<const float> parameters) {
  std::vector<float> values;
  for (const nn::RunningUpdate& norm : model.running_statistics()) {
    for (const nn::ParameterIndex index : {norm.mean, norm.variance}) {
      const auto part = EntryValues(model.layout().entries()[index], parameters);
      values.insert(values.end(), part.begin(), part.end());
    }
  }
  return values;
}

Result<UpdateOutcome> StatisticsUpdate(Communicator& comm, const Model& model,
                                       std::span<const float> parameters, const Plan& plan,
                                       Prefetcher& batches, StatisticsMistake mistake) {
  GACCD_ASSIGN_OR_RETURN(const HostBuffer memory,
                         HostBuffer::Allocate(parameters.size_bytes(), "gradients"));
  const std::span gradients(reinterpret_cast<float*>(memory.data()), parameters.size());
  GACCD_ASSIGN_OR_RETURN(auto replica,
                         Replica::Create(model, gradients, MicroBatchSizes(plan, comm.rank())));
  std::ranges::copy(parameters, replica->parameters().begin());
  GACCD_RETURN_IF_ERROR(replica->ParametersChanged());
  FaultyUpdate update(comm, model, plan, mistake, *replica);
  GACCD_RETURN_IF_ERROR(update.Run(batches));
  GACCD_RETURN_IF_ERROR(update.Reduce());
  return UpdateOutcome{.gradient = {gradients.begin(), gradients.end()},
                       .running = update.Running()};
}

}  // namespace gaccd
