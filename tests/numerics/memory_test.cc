// What the plan says a model needs against what the process really uses. A process of its own, so
// that nothing else grows meanwhile.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "daemon/device/host_buffer.h"
#include "tests/unit/engine/model_bench.h"

namespace gaccd {
namespace {

const std::vector<std::int64_t> kWidths = {2048, 4096, 4096, 10};

std::int64_t Resident() {
  const auto bytes = ResidentBytes();
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return bytes.ok() ? *bytes : 0;
}

class MemoryTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(MemoryTest, PlannedBytesAreWithin3PercentOfTheMeasuredOnes) {
#ifdef GACCD_SANITIZED
  GTEST_SKIP() << "sanitizers bring memory of their own";
#endif
  {  // Loads the code of oneDNN, which is not the model's.
    const Model small = MakeMlp({64, 64, 10});
    Samples samples(SampleOf({64, 64, 10}, LossKind::kSoftmaxCrossEntropy), 64, 3);
    Trainer warm_up(small, {.micro_batches = {64}, .micro_steps_per_update = GetParam()});
    warm_up.MicroStep(samples.All(), 1, true);
  }
  const Model model = MakeMlp(kWidths);
  Samples samples(SampleOf(kWidths, LossKind::kSoftmaxCrossEntropy), 32, 3);
  const std::int64_t before = Resident();
  Trainer trainer(
      model,
      {.micro_batches = {31, 32}, .eval_batches = {32}, .micro_steps_per_update = GetParam()});
  for (int update = 0; update < 2; ++update) {
    trainer.MicroStep(samples.All(), 1e-3F, true);
    trainer.MicroStep(samples.View(0, 31), 1e-3F, false);
    Descend(trainer.parameters(), trainer.gradients(), 0.1F);
    trainer.ParametersChanged();
  }
  ASSERT_TRUE(trainer.replica().Evaluate(samples.All()).ok());
  const auto measured = static_cast<double>(Resident() - before);
  const auto planned = static_cast<double>(trainer.replica().planned_bytes());
  std::printf("  %lld micro-steps an update: planned %.1f MiB, measured %.1f MiB (%+.2f %%)\n",
              static_cast<long long>(GetParam()), planned / 1048576, measured / 1048576,
              100 * (measured / planned - 1));
  EXPECT_NEAR(measured / planned, 1, 0.03);
}

INSTANTIATE_TEST_SUITE_P(PlainAndPackedWeights, MemoryTest, testing::Values(1, 8));

}  // namespace
}  // namespace gaccd
