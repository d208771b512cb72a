// What the plan says a model needs against what the process really uses. A process of its own, so
// that nothing else grows meanwhile.
#include "collectives/base/memory.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "daemon/device/cpu/onednn.h"
#include "tests/support/model_bench.h"

namespace gaccd {
namespace {

struct Load {
  const char* name;
  std::vector<std::int64_t> widths;
  std::int64_t samples;  // of a micro-batch
  std::int64_t micro_steps;
  Precision precision = Precision::kF32;
};
const Load kLoads[] = {
    {"parameters", {2048, 4096, 4096, 10}, 32, 1},
    {"parameters_and_packed_weights", {2048, 4096, 4096, 10}, 32, 8},
    {"activations", {64, 64, 10}, 200'000, 1},
    {"parameters_in_bf16", {2048, 4096, 4096, 10}, 32, 1, Precision::kBF16},
    {"activations_in_bf16", {64, 64, 10}, 200'000, 1, Precision::kBF16},
};

std::int64_t Resident() {
  const auto bytes = ResidentBytes();
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return bytes.ok() ? *bytes : 0;
}

class MemoryTest : public testing::TestWithParam<Load> {};

TEST_P(MemoryTest, PlannedBytesAreWithin3PercentOfMeasured) {
#ifdef GACCD_SANITIZED
  GTEST_SKIP() << "sanitizers bring memory of their own";
#endif
  const Load& load = GetParam();
  if (load.precision == Precision::kBF16 && DetectCpuBf16() == CpuBf16::kNone) {
    GTEST_SKIP() << "this CPU has " << Name(DetectCpuBf16());
  }
  const LossKind loss = LossKind::kSoftmaxCrossEntropy;
  {  // Loads the code of oneDNN, which is not the model's.
    const Model small = MakeMlp({64, 64, 10});
    Samples samples(MakeSampleSpec({64, 64, 10}, loss), 8192, 3);  // large and small products
    BenchTrainer warm_up(small,
                         {.micro_batches = {64, 8192}, .micro_steps_per_update = load.micro_steps},
                         1, load.precision);
    warm_up.MicroStep(samples.View(0, 64), 1, true);
    warm_up.MicroStep(samples.All(), 1, false);
  }
  const Model model = MakeMlp(load.widths);
  const std::int64_t fewer = load.samples - 1;
  Samples samples(MakeSampleSpec(load.widths, loss), load.samples, 3);
  const std::int64_t before = Resident();
  BenchTrainer trainer(model,
                       {.micro_batches = {fewer, load.samples},
                        .eval_batches = {load.samples},
                        .micro_steps_per_update = load.micro_steps},
                       1, load.precision);
  for (int update = 0; update < 2; ++update) {
    trainer.MicroStep(samples.All(), 1e-3F, true);
    trainer.MicroStep(samples.View(0, fewer), 1e-3F, false);
    Descend(trainer.parameters(), trainer.gradients(), 0.1F);
    trainer.ParametersChanged();
  }
  ASSERT_TRUE(trainer.replica().Evaluate(samples.All()).ok());
  const auto measured = static_cast<double>(Resident() - before);
  const auto planned = static_cast<double>(trainer.replica().planned_bytes());
  std::printf("  %s: planned %.1f MiB, measured %.1f MiB (%+.2f %%)\n", load.name,
              planned / 1048576, measured / 1048576, 100 * (measured / planned - 1));
  EXPECT_NEAR(measured / planned, 1, 0.03);
}

INSTANTIATE_TEST_SUITE_P(All, MemoryTest, testing::ValuesIn(kLoads),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace gaccd
