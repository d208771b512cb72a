#include "daemon/config/plan_command.h"

#include <optional>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/config/plan_proto.h"
#include "daemon/plan/plan_text.h"

namespace gaccd {
namespace {

// A plan needs no job; without one the batch comes from flags and defaults alone.
Result<BatchSpec> ReadBatch(const Flags& flags) {
  Job job;
  job.epochs = 1;
  if (flags.job) {
    GACCD_ASSIGN_OR_RETURN(job, LoadJob(*flags.job));
    GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
    return job.batch;
  }
  BatchSpec batch;
  batch.target = flags.target_batch.value_or(0);
  batch.micro = flags.micro_batch.value_or(batch.micro);
  batch.rounding = flags.rounding.value_or(batch.rounding);
  batch.lr_rule = flags.lr_rule.value_or(batch.lr_rule);
  batch.reference = flags.reference_batch.value_or(batch.reference);
  return batch;
}

PlanOrigins ReadOrigins(const Flags& flags) {
  const auto cluster = [](const auto& flag) { return flag ? Origin::kGiven : Origin::kDefault; };
  const auto batch = [&flags](const auto& flag) {
    if (flag) return Origin::kGiven;
    return flags.job ? Origin::kJob : Origin::kDefault;
  };
  return {.nodes = cluster(flags.nodes),
          .gpus_per_node = cluster(flags.gpus_per_node),
          .micro_batch = batch(flags.micro_batch),
          .target_batch = batch(flags.target_batch),
          .rounding = batch(flags.rounding),
          .lr_rule = batch(flags.lr_rule)};
}

std::string Print(const Plan& plan, const Flags& flags) {
  switch (flags.format) {
    case OutputFormat::kText:
      return PlanText(plan, ReadOrigins(flags));
    case OutputFormat::kJson:
      return PlanJson(plan) + "\n";
    case OutputFormat::kTxtpb:
      return PlanTxtpb(plan);
  }
  return {};
}

}  // namespace

Result<PlanOutput> MakePlanOutput(const Flags& flags) {
  GACCD_ASSIGN_OR_RETURN(const BatchSpec batch, ReadBatch(flags));
  GACCD_ASSIGN_OR_RETURN(const PlanRequest request,
                         ToPlanRequest(batch, flags.nodes.value_or(kDefaultNodes),
                                       flags.gpus_per_node.value_or(kDefaultGpusPerNode)));
  GACCD_ASSIGN_OR_RETURN(const Plan plan, Plan::Make(request));
  return PlanOutput{Print(plan, flags), flags.strict ? RequireExact(plan) : Status::Ok()};
}

Status RequireExact(const Plan& plan) {
  if (plan.exact()) return {};
  return {ErrorKind::kConfig,
          StrCat("--strict: the plan must be exact, but --rounding=", Name(plan.request().rounding),
                 " gives an effective batch of ", plan.effective_batch(), " for the target ",
                 plan.request().target_batch)};
}

}  // namespace gaccd
