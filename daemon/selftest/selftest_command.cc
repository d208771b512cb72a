#include <cmath>
#include <utility>
#include <vector>

#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
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

// The results of a selftest as text and JSON.

namespace {

// has_effect: the mistake changes the gradient. shows: by more than rounding, so it must be caught.
std::string Cell(double deviation, double tolerance, bool has_effect, bool shows) {
  if (!has_effect) return "no effect";
  const char* verdict = deviation > tolerance ? "caught" : shows ? "MISSED" : "small";
  return Format("%.1e %s", deviation, verdict);
}

}  // namespace

std::string SelftestJson(const std::vector<SelftestCase>& cases) {
  const auto deviation = [](double value, bool shows) { return shows ? value : std::nan(""); };
  std::string text;
  for (const SelftestCase& test : cases) {
    const PlanRequest& request = test.plan.request();
    JsonObject json;
    json("mode", Name(request.rounding));
    json("nodes", request.nodes);
    json("gpus_per_node", request.gpus_per_node);
    json("micro_batch", request.micro_batch);
    json("target_batch", request.target_batch);
    json("effective_batch", test.plan.effective_batch());
    json("accum_steps", test.plan.accum_steps());
    json("deviation", test.right);
    json("mean_of_means", deviation(test.mean_of_means, test.mean_of_means_error() > 0));
    json("last_micro_batch_only", deviation(test.last_only, test.several_steps()));
    json("tokens_deviation", test.tokens);
    json("mean_of_rank_means", deviation(test.rank_means, test.rank_means_error > 0));
    json("passed", test.passed());
    text += json.FinishLine();
  }
  return text;
}

std::string SelftestText(const PlanRequest& request, const std::vector<SelftestCase>& cases) {
  std::string text =
      StrCat("selftest: ", request.nodes, " nodes x ", request.gpus_per_node, " = ",
             request.nodes * request.gpus_per_node, " ranks as threads, micro-batch ",
             request.micro_batch, ", target batch ", request.target_batch, "\n",
             "gradient against one big batch on one rank: |g - g_ref| / |g_ref|\n\n",
             "  mode     steps  samples  gaccd       mean of means   last micro-batch only"
             "   tokens      mean of rank means\n");
  bool passed = true;
  double tolerance = 0;
  for (const SelftestCase& test : cases) {
    text += Format(
        "  %-8s %5ld %8ld  %.1e %-3s %-15s %-23s %.1e %-3s %s\n",
        std::string(Name(test.plan.request().rounding)).c_str(), test.plan.accum_steps(),
        test.plan.effective_batch(), test.right, test.right <= test.tolerance() ? "ok" : "BAD",
        Cell(test.mean_of_means, test.tolerance(), test.mean_of_means_error() > 0,
             test.mean_of_means_shows())
            .c_str(),
        Cell(test.last_only, test.tolerance(), test.several_steps(), true).c_str(), test.tokens,
        test.tokens <= test.tolerance() ? "ok" : "BAD",
        Cell(test.rank_means, test.tolerance(), test.rank_means_error > 0, test.rank_means_show())
            .c_str());
    passed = passed && test.passed();
    tolerance = std::max(tolerance, test.tolerance());
  }
  if (!passed) return text + "\nselftest FAILED\n";
  return text + Format(
                    "\nselftest passed: every mode is right to %.2g, every mistake that has an "
                    "effect is caught\n",
                    tolerance);
}

}  // namespace gaccd
