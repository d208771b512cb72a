#include <gtest/gtest.h>

#include <functional>

#include "daemon/checkpoint/train_state.h"
#include "daemon/config/job_text.h"
#include "tests/support/small_regression.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

// A run that asks whether it may continue inside update 8.
struct PartialRun {
  Job job = [] {
    Job small = tests::SmallRegression();
    small.batch = {.target = 32, .micro = 5, .last_cycle = LastCycle::kCarry};
    small.optimizer = {.lr = 0.1, .kind = SgdSpec{}};
    small.epochs = 1;  // 8 updates, the last of 6 samples
    return small;
  }();
  PlanRequest request{.nodes = 1, .gpus_per_node = 2, .micro_batch = 5, .target_batch = 32};
  bool by_length = false;
  bool has_divisors = true;  // in the checkpoint
};

TEST(RunStateTest, PartialUpdateRequiresSameMicroSteps) {
  const PartialRun saved;
  const auto check = [&](const std::function<void(PartialRun&)>& change) {
    PartialRun now;
    change(now);
    const Manifest manifest{.cursor = {.step = 7, .micro_step = 1, .dataset_samples = 230},
                            .job_text = JobText(saved.job),
                            .plan = Plan::Make(saved.request).value(),
                            .has_divisors = now.has_divisors};
    return CheckSamePartialUpdate(manifest, saved.job, now.job, Plan::Make(now.request).value(),
                                  now.by_length);
  };
  EXPECT_OK(check([](PartialRun&) {}));
  struct {
    const char* what;
    std::function<void(PartialRun&)> change;
  } const cases[] = {
      {"the checkpoint has ranks 2, this job has 3",
       [](PartialRun& now) { now.request.gpus_per_node = 3; }},
      {"micro-batch 5, this job has 4", [](PartialRun& now) { now.request.micro_batch = 4; }},
      {"micro-steps 4, this job has 7", [](PartialRun& now) { now.request.target_batch = 64; }},
      {"by length off, this job has on", [](PartialRun& now) { now.by_length = true; }},
      {"the divisor of the loss", [](PartialRun& now) { now.has_divisors = false; }},
      {"the precision", [](PartialRun& now) { now.job.precision = Precision::kBF16; }},
      {"update 8 took 6 samples after 224, in this job it takes 32 after 224",
       [](PartialRun& now) { now.job.epochs = 2; }},
  };
  for (const auto& test : cases) {
    EXPECT_THAT(check(test.change), IsError(ErrorKind::kConfig, test.what));
  }
}

TEST(RunStateTest, NetworkIncludesNoDropout) {
  const auto check = [](auto spec) {
    Job saved = PartialRun().job;
    saved.model = {.architecture = spec};
    spec.dropout = 0.25;
    Job now = saved;
    now.model = {.architecture = spec};
    EXPECT_OK(CheckSameNetwork(saved, now));
    EXPECT_THAT(CheckSameModel(saved, now), IsError(ErrorKind::kConfig, "dropout"));
  };
  check(GptSpec());
  check(BertSpec());
  check(VitSpec());
}

}  // namespace
}  // namespace gaccd
