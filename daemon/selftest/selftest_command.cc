#include "daemon/selftest/selftest_command.h"

#include <utility>
#include <vector>

#include "collectives/base/print.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/config/make_plan.h"
#include "daemon/models/graph_network.h"
#include "daemon/selftest/selftest.h"
#include "daemon/selftest/selftest_job.h"

namespace gaccd {
namespace {

// 32 / 25 of one micro-batch on every rank: the ratio of the published case, 3072 / 2400.
Result<std::int64_t> DefaultTarget(std::int64_t nodes, std::int64_t gpus_per_node,
                                   std::int64_t micro_batch) {
  std::int64_t product = 32;
  for (const std::int64_t factor : {nodes, gpus_per_node, micro_batch}) {
    if (!__builtin_mul_overflow(product, factor, &product)) continue;
    return Status(ErrorKind::kConfig,
                  StrCat("nodes ", nodes, " * GPUs ", gpus_per_node, " * micro-batch ", micro_batch,
                         " * 32 does not fit 63 bits: give --target-batch"));
  }
  return product / 25;
}

Status RunJobSelftestCommand(const Flags& flags) {
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job));
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  GACCD_ASSIGN_OR_RETURN(job, WithGraphDigest(std::move(job)));
  GACCD_ASSIGN_OR_RETURN(PlanRequest request,
                         ToPlanRequest(job.batch, flags.nodes.value_or(kDefaultNodes),
                                       flags.gpus_per_node.value_or(kDefaultGpusPerNode)));
  request.stages = job.pipeline.stages;
  GACCD_ASSIGN_OR_RETURN(const JobSelftest test, RunJobSelftest(job, request));
  GACCD_RETURN_IF_ERROR(PrintOut(flags.format == OutputFormat::kJson ? JobSelftestJson(test)
                                                                     : JobSelftestText(test)));
  if (test.passed()) return Status::Ok();
  return {ErrorKind::kInternal, "selftest: the job failed, see the table"};
}

}  // namespace

Status RunSelftest(const Flags& flags) {
  if (flags.job) return RunJobSelftestCommand(flags);
  const std::int64_t nodes = flags.nodes.value_or(kDefaultNodes);
  const std::int64_t gpus_per_node = flags.gpus_per_node.value_or(kDefaultGpusPerNode);
  GACCD_ASSIGN_OR_RETURN(const Job job, OverlayFlags(Job{}, flags));
  if (job.shard != Sharding::kNone || job.pipeline.stages > 1 || job.batch.recompute ||
      job.batch.bits != Bits::kThisSplit) {
    return {ErrorKind::kUsage,
            "selftest: --shard, --pipeline, --recompute and --bits are tested with --job=FILE"};
  }
  BatchSpec batch = job.batch;
  if (!batch.target && !batch.target_schedule) {
    GACCD_ASSIGN_OR_RETURN(batch.target, DefaultTarget(nodes, gpus_per_node, batch.micro));
  }
  GACCD_ASSIGN_OR_RETURN(const PlanRequest request, ToPlanRequest(batch, nodes, gpus_per_node));
  GACCD_ASSIGN_OR_RETURN(const std::vector<SelftestCase> cases, RunSelftestCases(request));
  GACCD_RETURN_IF_ERROR(PrintOut(
      flags.format == OutputFormat::kJson ? SelftestJson(cases) : SelftestText(request, cases)));
  for (const SelftestCase& test : cases) {
    if (!test.passed()) {
      return {ErrorKind::kInternal, StrCat("selftest: mode ", Name(test.plan.request().rounding),
                                           " failed, see the table")};
    }
  }
  return Status::Ok();
}

}  // namespace gaccd
