// The results of a selftest as text and JSON.
#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/selftest/selftest.h"

namespace gaccd {
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
