// The selftest of a user's job: its first update, with its own model and data, with all ranks as
// threads of this process, compared with one big batch on one rank; and the mistakes that apply to
// the job's loss, shard mode or pipeline, which the same comparison must detect. On CPUs, in f32.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"

namespace gaccd {

struct JobSelftest {
  struct Mistake {
    std::string name;
    double deviation = 0;
    bool has_effect = true;  // it changes the update of this plan
  };

  Plan plan;
  std::string model;            // for users
  bool has_statistics = false;  // over the whole update
  // |g - g_ref| / |g_ref| over the whole gradient, the maximum over the ranks; or over the running
  // statistics, if that is larger.
  double right = 0;
  // The same for the update of one rank in two micro-batches: how much the order of sums changes
  // the result of this model.
  double rounding = 0;
  std::vector<Mistake> mistakes;
  // With Bits::kAnySplit: how many values differ in any bit from those of one rank, the maximum
  // over the ranks; and the same without it.
  std::int64_t other_bits = 0;
  std::int64_t other_bits_of_this_split = 0;

  // As SelftestCase::tolerance(), or 4 x rounding, at most 1e-3: deep networks with batch norms
  // amplify rounding. Larger differences are never explained by it.
  [[nodiscard]] double tolerance() const;
  [[nodiscard]] bool passed() const;
};

// request: with the stages of the job's pipeline. kOs if this machine cannot run so many ranks;
// kConfig if the gradient of the first update is 0; errors of the data and the model.
Result<JobSelftest> RunJobSelftest(const Job& job, const PlanRequest& request);

// One line of JSON; a table for users, with the verdict in the last line.
[[nodiscard]] std::string JobSelftestJson(const JobSelftest& test);
[[nodiscard]] std::string JobSelftestText(const JobSelftest& test);

}  // namespace gaccd
