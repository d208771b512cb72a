// The selftest of a user's own job: its first update, of its own model and data, with all ranks as
// threads of this process, against one big batch on one rank; and the mistakes that the job's loss,
// shard mode or pipeline lends itself to, which the same comparison must catch. On CPUs, in f32.
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
  std::string model;            // for people
  bool has_statistics = false;  // of the whole update
  // |g - g_ref| / |g_ref| over the whole gradient, the largest over the ranks; or of the running
  // statistics, where that is more.
  double right = 0;
  std::vector<Mistake> mistakes;

  // As SelftestCase::tolerance().
  [[nodiscard]] double tolerance() const;
  [[nodiscard]] bool passed() const;
};

// request: with the stages of the job's pipeline. kOs when this machine cannot run so many ranks;
// errors of the data and the model.
Result<JobSelftest> RunJobSelftest(const Job& job, const PlanRequest& request);

// One line of JSON; a table for people, with the verdict in its last line.
[[nodiscard]] std::string JobSelftestJson(const JobSelftest& test);
[[nodiscard]] std::string JobSelftestText(const JobSelftest& test);

}  // namespace gaccd
