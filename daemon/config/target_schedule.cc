#include "daemon/config/target_schedule.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/config/plan_proto.h"
#include "daemon/plan/speeds.h"
#include "proto/plan.pb.h"

namespace gaccd {
namespace {

Status Bad(std::size_t stage, const std::string& why) {
  return {ErrorKind::kConfig, StrCat("batch.target_schedule.stage[", stage, "]", why)};
}

// "update 2000", "5000000 samples"
std::string BeginText(const TargetStageSpec& stage) {
  return stage.at_update ? StrCat(*stage.at_update, " updates")
                         : StrCat(*stage.at_samples, " samples");
}

// `plan` for the target of `stage`, with the same memory.
Result<Plan> StagePlan(const Plan& plan, const TargetStageSpec& stage) {
  GACCD_ASSIGN_OR_RETURN(Plan own, plan.ForTarget(stage.target));
  if (plan.memory()) own.set_memory(*plan.memory());
  return own;
}

// A table cell, with a space after it even if the text is too wide.
std::string Padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

}  // namespace

Status CheckTargetSchedule(const BatchSpec& batch) {
  if (!batch.target_schedule) return {};
  if (batch.target) {
    return {ErrorKind::kConfig,
            StrCat("batch: expected one of target and target_schedule, found both, the target ",
                   *batch.target, " and ", batch.target_schedule->stage.size(), " stages")};
  }
  std::int64_t last_update = -1;
  std::int64_t last_samples = -1;
  for (std::size_t i = 0; const TargetStageSpec& stage : batch.target_schedule->stage) {
    if (stage.at_update.has_value() == stage.at_samples.has_value()) {
      return Bad(i, StrCat(": expected one of at_update and at_samples, found ",
                           stage.at_update ? "both" : "none"));
    }
    const std::int64_t begin = stage.at_update ? *stage.at_update : *stage.at_samples;
    std::int64_t& last = stage.at_update ? last_update : last_samples;
    const std::string name = stage.at_update ? ".at_update" : ".at_samples";
    if (i == 0 && begin != 0) {
      return Bad(i, StrCat(name, ": the first stage begins at 0, found ", begin));
    }
    if (i > 0 && begin <= std::max<std::int64_t>(last, 0)) {
      return Bad(i, StrCat(name, ": stages begin one after the other, expected more than ",
                           std::max<std::int64_t>(last, 0), ", found ", begin));
    }
    last = begin;
    ++i;
  }
  return {};
}

Result<std::int64_t> FirstTarget(const BatchSpec& batch) {
  if (batch.target_schedule) return batch.target_schedule->stage.front().target;
  if (batch.target) return *batch.target;
  return Status(ErrorKind::kUsage,
                "the target batch is missing: give --target-batch=N, or batch.target in the job");
}

Result<std::int64_t> LargestTarget(const BatchSpec& batch) {
  if (!batch.target_schedule) return FirstTarget(batch);
  return std::ranges::max(batch.target_schedule->stage, {}, &TargetStageSpec::target).target;
}

Result<Plan> FirstPlan(const BatchSpec& batch, const Plan& plan) {
  if (!batch.target_schedule) return plan;
  return StagePlan(plan, batch.target_schedule->stage.front());
}

Result<std::string> StagesText(const BatchSpec& batch, const Plan& plan) {
  if (!batch.target_schedule) return std::string();
  constexpr std::size_t kBegin = 20;
  constexpr std::size_t kNumber = 10;
  std::string text = StrCat("\nStages of the target schedule\n  ", Padded("begins after", kBegin),
                            Padded("target", kNumber), Padded("samples", kNumber),
                            Padded("steps", kNumber), Padded("lr x", kNumber), "ranks x samples\n");
  for (const TargetStageSpec& stage : batch.target_schedule->stage) {
    GACCD_ASSIGN_OR_RETURN(const Plan own, plan.ForTarget(stage.target));
    text += StrCat("  ", Padded(BeginText(stage), kBegin), Padded(StrCat(stage.target), kNumber),
                   Padded(StrCat(own.effective_batch()), kNumber),
                   Padded(StrCat(own.accum_steps()), kNumber),
                   Padded(StrCat(own.lr_factor()), kNumber), LoadsText(own), "\n");
  }
  return text;
}

Result<std::string> StagesJson(const BatchSpec& batch, const Plan& plan, bool ranks) {
  const auto add = [ranks](const Plan& own, const std::string& line, std::string* text) -> Status {
    *text += line + "\n";
    if (!ranks) return {};
    GACCD_ASSIGN_OR_RETURN(const std::string lines, RanksJson(own));
    *text += lines;
    return {};
  };
  std::string text;
  if (!batch.target_schedule) {
    GACCD_RETURN_IF_ERROR(add(plan, PlanJson(plan), &text));
    return text;
  }
  for (std::size_t i = 0; const TargetStageSpec& stage : batch.target_schedule->stage) {
    GACCD_ASSIGN_OR_RETURN(const Plan own, StagePlan(plan, stage));
    proto::Plan message;
    FillPlanProto(own, message);
    message.set_stage(static_cast<std::int64_t>(++i));
    if (stage.at_update) message.set_at_update(*stage.at_update);
    if (stage.at_samples) message.set_at_samples(*stage.at_samples);
    GACCD_RETURN_IF_ERROR(add(own, FlatJson(message), &text));
  }
  return text;
}

}  // namespace gaccd
