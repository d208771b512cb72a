#include "daemon/config/make_plan.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/config/flag_values.h"
#include "daemon/config/job_text.h"
#include "daemon/config/plan_proto.h"
#include "daemon/config/target_schedule.h"
#include "daemon/plan/micro_batch.h"
#include "daemon/plan/plan_text.h"

namespace gaccd {
namespace {

// Without --job the plan is made from flags and defaults, without a model.
Result<Job> ReadJob(const Flags& flags) {
  Job job;
  if (flags.job) {
    GACCD_ASSIGN_OR_RETURN(job, LoadJob(*flags.job));
  }
  return OverlayFlags(std::move(job), flags);
}

PlanOrigins ReadOrigins(const Flags& flags, const Job::Given& job) {
  const auto cluster = [](const auto& flag) { return flag ? Origin::kGiven : Origin::kDefault; };
  const auto batch = [&flags](std::string_view path, bool in_job) {
    if (SetsJobField(flags, path)) return Origin::kGiven;
    return in_job ? Origin::kJob : Origin::kDefault;
  };
  return {.nodes = cluster(flags.nodes),
          .gpus_per_node = cluster(flags.gpus_per_node),
          .micro_batch = flags.micro_batch_auto ? Origin::kMemory : batch("batch.micro", job.micro),
          .target_batch = batch("batch.target", true),  // it has no default
          .rounding = batch("batch.rounding", job.rounding),
          .lr_rule = batch("batch.lr_rule", job.lr_rule)};
}

Result<std::string> Print(const Plan& plan, const Flags& flags, const Job& job) {
  switch (flags.format) {
    case OutputFormat::kText: {
      GACCD_ASSIGN_OR_RETURN(const std::string stages, StagesText(job.batch, plan));
      return PlanText(plan, ReadOrigins(flags, job.given),
                      job.device == Device::kCuda ? RankKind::kGpu : RankKind::kRank) +
             stages;
    }
    case OutputFormat::kJson:
      return StagesJson(job.batch, plan, flags.ranks);
    case OutputFormat::kTxtpb:
      return PlanTxtpb(plan);
    default:
      return std::string();  // ParseFlags() rejects the others
  }
}

Status CheckPipelineFlags(const Flags& flags) {
  if (flags.micro_batch_auto) {
    return {ErrorKind::kConfig,
            "pipeline: expected a micro-batch, --micro-batch=auto is not supported with it yet"};
  }
  const bool measured = flags.speed == "measured";
  if (measured || flags.rebalance == Rebalance::kAuto) {
    return {ErrorKind::kConfig,
            StrCat("pipeline: loads by measured speeds are not supported with it yet, found ",
                   measured ? "--speed=measured" : "--rebalance=auto")};
  }
  if (flags.on_nonfinite == OnNonfinite::kDropMicroBatch) {
    return {ErrorKind::kConfig,
            "pipeline: its stages do not know which micro-batch another one drops, expected "
            "--on-nonfinite=stop or skip-update, found drop-micro-batch"};
  }
  return {};
}

// The plans of the stages of a target schedule, otherwise only `plan`.
Result<std::vector<Plan>> StagePlans(const BatchSpec& batch, const Plan& plan) {
  if (!batch.target_schedule) return std::vector<Plan>{plan};
  std::vector<Plan> plans;
  for (const TargetStageSpec& stage : batch.target_schedule->stage) {
    GACCD_ASSIGN_OR_RETURN(Plan own, plan.ForTarget(stage.target));
    plans.push_back(std::move(own));
  }
  return plans;
}

}  // namespace

Result<Plan> PlanBeforeChoice(const PlanRequest& request, const Flags& flags) {
  if (request.stages > 1) GACCD_RETURN_IF_ERROR(CheckPipelineFlags(flags));
  if (request.bits == Bits::kAnySplit && flags.micro_batch_auto) {
    return Status(ErrorKind::kConfig,
                  "--bits=any-split: the micro-batch must be the same on any ranks, expected a "
                  "number, found --micro-batch=auto");
  }
  return flags.micro_batch_auto ? InOneMicroStep(request) : Plan::Make(request);
}

Result<PlanOutput> MakePlanOutput(const Flags& flags, const PlanChooser& choose) {
  GACCD_ASSIGN_OR_RETURN(Job job, ReadJob(flags));
  const std::int64_t nodes = flags.nodes.value_or(kDefaultNodes);
  const std::int64_t per_node = flags.gpus_per_node.value_or(kDefaultGpusPerNode);
  GACCD_ASSIGN_OR_RETURN(PlanRequest request, ToPlanRequest(job.batch, nodes, per_node));
  request.stages = job.pipeline.stages;
  if (flags.speed) {
    GACCD_ASSIGN_OR_RETURN(const SpeedFlag speed, ParseSpeedFlag(*flags.speed));
    GACCD_ASSIGN_OR_RETURN(request.speeds, RankSpeedsByNode(speed, nodes, per_node));
  }
  if (flags.micro_batch_auto) {  // the largest update determines the memory
    GACCD_ASSIGN_OR_RETURN(request.target_batch, LargestTarget(job.batch));
  }
  GACCD_ASSIGN_OR_RETURN(Plan plan, PlanBeforeChoice(request, flags));
  if (flags.micro_batch_auto) {
    if (choose) {
      GACCD_ASSIGN_OR_RETURN(plan, choose(job, plan));
    }
    job.batch.micro = plan.request().micro_batch;
    job.batch.recompute = plan.request().recompute;
    GACCD_ASSIGN_OR_RETURN(plan, FirstPlan(job.batch, plan));
  }
  if (flags.ranks && flags.format != OutputFormat::kJson) {
    return Status(ErrorKind::kUsage,
                  StrCat("--ranks needs --format=json, found --format=",
                         flags.format == OutputFormat::kText ? "text" : "txtpb"));
  }
  GACCD_ASSIGN_OR_RETURN(std::string text, Print(plan, flags, job));
  return PlanOutput{std::move(text), flags.strict ? RequireExact(job.batch, plan) : Status::Ok(),
                    job, plan};
}

Status RequireExact(const BatchSpec& batch, const Plan& plan) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<Plan> plans, StagePlans(batch, plan));
  for (const Plan& one : plans) {
    if (one.exact()) continue;
    return {ErrorKind::kConfig,
            StrCat("--strict: the plan must be exact, but --rounding=",
                   Name(one.request().rounding), " gives an effective batch of ",
                   one.effective_batch(), " for the target ", one.request().target_batch)};
  }
  return {};
}

std::vector<std::string> BatchWarnings(const BatchSpec& batch, const Plan& plan) {
  const auto plans = StagePlans(batch, plan);
  if (!plans.ok()) return {};
  std::vector<std::string> warnings;
  for (const Plan& one : *plans) {
    if (one.exact()) continue;
    const PlanRequest& request = one.request();
    const bool raised =
        request.rounding == Rounding::kFloor && request.target_batch < one.effective_batch();
    warnings.push_back(StrCat(
        "--rounding=", Name(request.rounding), ": an update has ", one.effective_batch(),
        " samples, the target is ", request.target_batch,
        raised ? "; it has at least one base batch" : "", "; --rounding=exact gives the target"));
  }
  const bool other = batch.reference > 0 && batch.reference != plan.request().target_batch;
  if (batch.lr_rule == LrRule::kNone && other) {
    warnings.push_back(StrCat("--reference-batch=", batch.reference,
                              " is ignored: no rule scales the learning rate; --lr-rule=linear or "
                              "sqrt does"));
  }
  return warnings;
}

}  // namespace gaccd
