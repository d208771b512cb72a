#include "daemon/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

double Warmup(std::int64_t warmup_updates, std::int64_t update) {
  if (update >= warmup_updates) return 1;
  return static_cast<double>(update + 1) / static_cast<double>(warmup_updates);
}

double CosineAt(const CosineSpec& shape, double t) {
  const double f = shape.final_ratio;
  return f + (1 - f) * (1 + std::cos(std::numbers::pi * std::min(1.0, t))) / 2;
}

double LinearAt(const LinearDecaySpec& shape, double t) {
  const double f = shape.final_ratio;
  const double h = shape.hold_ratio;
  return t <= h ? 1 : f + (1 - f) * (1 - std::min(1.0, (t - h) / (1 - h)));
}

double StepAt(const StepDecaySpec& shape, std::int64_t update) {
  return std::pow(shape.gamma, static_cast<double>(update / shape.every_updates));
}

double ShapeAt(const ScheduleSpec& spec, std::int64_t update, double t) {
  return std::visit(Overloaded{[](const std::monostate&) { return 1.0; },
                               [&](const CosineSpec& cosine) {
                                 return update <= spec.warmup_updates ? 1 : CosineAt(cosine, t);
                               },
                               [&](const StepDecaySpec& step) { return StepAt(step, update); },
                               [&](const LinearDecaySpec& linear) { return LinearAt(linear, t); }},
                    spec.shape);
}

bool IsRatio(double value) { return value >= 0 && std::isfinite(value); }

Status CheckFinalRatio(std::string_view shape, double ratio) {
  if (IsRatio(ratio)) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("schedule: ", shape, " final_ratio must be >= 0 and finite, found ", ratio)};
}

}  // namespace

double LearningRate(const ScheduleSpec& spec, double base_lr, double lr_factor, std::int64_t update,
                    std::int64_t total_updates) {
  const std::int64_t length = std::max<std::int64_t>(1, total_updates - 1 - spec.warmup_updates);
  return LearningRateAt(
      spec, base_lr, lr_factor, update,
      static_cast<double>(update - spec.warmup_updates) / static_cast<double>(length));
}

double LearningRateAt(const ScheduleSpec& spec, double base_lr, double lr_factor,
                      std::int64_t update, double t) {
  return base_lr * lr_factor * Warmup(spec.warmup_updates, update) * ShapeAt(spec, update, t);
}

Status CheckSchedule(const ScheduleSpec& spec) {
  if (spec.warmup_updates < 0) {
    return {ErrorKind::kConfig,
            StrCat("schedule: warmup_updates must be >= 0, found ", spec.warmup_updates)};
  }
  if (const auto* cosine = std::get_if<CosineSpec>(&spec.shape)) {
    return CheckFinalRatio("cosine", cosine->final_ratio);
  }
  if (const auto* linear = std::get_if<LinearDecaySpec>(&spec.shape)) {
    if (!(linear->hold_ratio >= 0 && linear->hold_ratio <= 1)) {
      return {ErrorKind::kConfig,
              StrCat("schedule: linear hold_ratio must be in [0, 1], found ", linear->hold_ratio)};
    }
    return CheckFinalRatio("linear", linear->final_ratio);
  }
  if (const auto* step = std::get_if<StepDecaySpec>(&spec.shape)) {
    if (step->every_updates < 1) {
      return {ErrorKind::kConfig,
              StrCat("schedule: step every_updates must be >= 1, found ", step->every_updates)};
    }
    if (!IsRatio(step->gamma)) {
      return {ErrorKind::kConfig,
              StrCat("schedule: step gamma must be >= 0 and finite, found ", step->gamma)};
    }
  }
  return Status::Ok();
}

}  // namespace gaccd
