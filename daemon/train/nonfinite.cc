#include "daemon/train/nonfinite.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxNumbers = 16;

bool AllFinite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// Samples of the batch with a non-finite value.
std::vector<std::int64_t> BadInputs(const BatchView& batch, const SampleSpec& spec) {
  std::vector<std::int64_t> bad;
  for (std::size_t i = 0; i < static_cast<std::size_t>(batch.samples); ++i) {
    bool finite = true;
    for (std::size_t t = 0; t < spec.tensors.size(); ++t) {
      if (spec.tensors[t].dtype != DType::kF32) continue;
      const auto width = static_cast<std::size_t>(spec.tensors[t].elements());
      finite = finite && AllFinite({batch.tensor<float>(t) + i * width, width});
    }
    if (!finite) bad.push_back(batch.ids[i]);
  }
  return bad;
}

std::string Numbers(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < std::min(numbers.size(), kMaxNumbers); ++i) {
    text += StrCat(i == 0 ? "" : ", ", numbers[i]);
  }
  if (numbers.size() > kMaxNumbers) {
    text += StrCat(" and ", numbers.size() - kMaxNumbers, " more");
  }
  return text;
}

}  // namespace

std::string FirstNotFiniteParameter(const FlatLayout& layout, std::span<const float> values) {
  for (const FlatEntry& entry : layout.entries()) {
    const auto of_entry = values.subspan(static_cast<std::size_t>(entry.offset),
                                         static_cast<std::size_t>(entry.elements));
    if (!AllFinite(of_entry)) return entry.name;
  }
  return {};
}

Result<std::vector<Offender>> FindOffenders(Engine& engine, const FlatLayout& layout,
                                            const UpdateReplay& replay, float limit,
                                            bool loss_only) {
  std::vector<Offender> offenders;
  std::vector<float> gradients(static_cast<std::size_t>(layout.size()));
  for (std::int64_t step = 0; step < replay.steps; ++step) {
    const BatchView* batch = replay.batches->Next();
    if (batch == nullptr) {
      return Status(ErrorKind::kInternal,
                    StrCat("micro-batch ", step + 1, " of ", replay.steps,
                           " cannot be computed again: the samples ended too early"));
    }
    if (batch->samples == 0) continue;
    Offender offender{.micro_step = step,
                      .where = "loss",
                      .samples = {batch->ids, batch->ids + batch->samples},
                      .bad_inputs = BadInputs(*batch, replay.spec)};
    if (!engine.can_probe()) {
      if (!offender.bad_inputs.empty()) offenders.push_back(std::move(offender));
      continue;
    }
    GACCD_ASSIGN_OR_RETURN(const double loss, engine.Probe(*batch));
    if (loss_only && std::isfinite(loss)) continue;
    GACCD_RETURN_IF_ERROR(engine.GetGradients(gradients));
    std::string where = FirstNotFiniteParameter(layout, gradients);
    if (where.empty()) {
      for (float& gradient : gradients) {
        if (std::fabs(gradient) >= limit) gradient = INFINITY;
      }
      where = FirstNotFiniteParameter(layout, gradients);
      offender.too_large = !where.empty();
    }
    if (where.empty() && std::isfinite(loss)) continue;
    if (!where.empty()) offender.where = std::move(where);
    offenders.push_back(std::move(offender));
  }
  return offenders;
}

std::string Describe(const std::vector<Offender>& offenders, std::int64_t steps) {
  const Offender& first = offenders.front();
  std::string text = StrCat(
      "micro-batch ", first.micro_step + 1, " of ", steps, ": the ",
      first.where == "loss" ? "loss" : StrCat("gradient of ", first.where),
      first.too_large ? " is not below 2^20, the limit of --bits=any-split" : " is not finite",
      "; samples ", Numbers(first.samples));
  if (!first.bad_inputs.empty()) {
    text += StrCat("; not finite in the data: samples ", Numbers(first.bad_inputs));
  }
  if (offenders.size() > 1) text += StrCat("; and ", offenders.size() - 1, " more micro-batches");
  return text;
}

Result<SharedOffenders> ShareOffenders(Communicator& comm,
                                       const Result<std::vector<Offender>>& mine,
                                       std::int64_t my_samples, std::int64_t steps, bool probed) {
  GACCD_RETURN_IF_ERROR(AgreeOn(comm, mine.status()).status);
  Status found;
  std::array<std::int64_t, 2> sums{my_samples, 0};  // remaining samples, those with non-finite data
  if (!mine->empty()) {
    found = {ErrorKind::kNoRequeue, Describe(*mine, steps)};
    for (const Offender& offender : *mine) {
      sums[0] -= std::ssize(offender.samples);
      sums[1] += std::ssize(offender.bad_inputs);
    }
  }
  const Agreement agreement = AgreeOn(comm, found);
  const MutableBuffer view = View(std::span<std::int64_t>(sums));
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(view, view));
  const char* const none = probed ? "every micro-batch is finite, but their sum overflows"
                                  : "all of its samples are finite in the data; micro-batches of "
                                    "this model cannot be computed by themselves";
  return SharedOffenders{.text = agreement.status.ok() ? none : agreement.status.message(),
                         .remaining_samples = sums[0],
                         .bad_data = sums[1] > 0};
}

std::string Remedy(const Job& job, OnNonfinite policy, bool bad_data) {
  std::string text;
  if (bad_data) {
    text = "correct these samples";
  } else {
    text = StrCat("lower the learning rate (optimizer.lr is ", job.optimizer.lr, "), ");
    if (job.clip_norm == 0) text += "set clip_norm, ";
    text += StrCat("lengthen the warm-up (schedule.warmup_updates is ", job.schedule.warmup_updates,
                   ")");
  }
  if (policy == OnNonfinite::kStop) {
    text += ", or skip such updates with --on-nonfinite=skip-update";
  }
  return text;
}

}  // namespace gaccd
