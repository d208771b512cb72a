// What the engine on a GPU plans of its memory, and what it does where there is too little.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/engine/planned_memory.h"
#include "daemon/models/network.h"
#include "tests/standin/sdpa_standin.h"
#include "tests/support/engine_on_gpu.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

TEST_F(CudaEngineTest, RefusesTooLittleMemoryNamingTheBytes) {
  standin::Reset({.memory_bytes = std::size_t{300} << 20});
  EngineCase test{.micro = 8, .target = 8, .updates = 1};
  test.widths = {12, 4096, 4096, 5};  // 16.8 M parameters: 64 MiB each of four kinds
  EXPECT_THAT(RunOn(Cuda(), test), IsError(ErrorKind::kConfig, "gradients", "optimiser state"));
}

// For micro-batches of 8 and an evaluation of 100.
Result<std::unique_ptr<Engine>> MakeEngineFor(Communicator& comm, const Model& model,
                                              const EngineCase& test) {
  EngineOptions options;
  options.replica.micro_batches = {8};
  options.replica.eval_batches = {100};
  options.optimizer = test.optimizer;
  options.choice = Cuda();
  return MakeEngine(comm, model, options);
}

// The scratch of kernels is known when they are prepared: the memory is checked again then.
TEST_F(CudaEngineTest, PlansScratch) {
  EngineCase test{.micro = 8, .target = 8, .updates = 1};
  test.widths = {2, 65'536, 2};  // small but for the column sums of one layer
  const auto comm = MakeSingle();
  const Model model = MakeCaseModel(test);
  std::int64_t planned = 0;
  {
    const auto engine = ValueOrThrow(MakeEngineFor(*comm, model, test));
    planned = engine->memory().device_bytes;
  }
  constexpr std::int64_t kScratch = 65'536 * 4;
  const auto enough = static_cast<std::size_t>(planned + DeviceMemory::kReserveBytes + 65'536);
  standin::Reset({.memory_bytes = enough});
  EXPECT_TRUE(MakeEngineFor(*comm, model, test).ok());
  standin::Reset({.memory_bytes = enough - kScratch / 2});
  EXPECT_THAT(MakeEngineFor(*comm, model, test),
              IsError(ErrorKind::kConfig, StrCat("scratch ", kScratch)));
}

// The library tries its attention on operands of the size that is asked for.
TEST_F(CudaEngineTest, PlansSizesThatDoNotFit) {
  constexpr std::int64_t kBytes = std::int64_t{400} << 20;
  standin::Reset({.memory_bytes = std::size_t{kBytes}});
  EngineCase test{.widths = {64, 5}, .texts = 64};
  test.numerics.precision = Precision::kBF16;
  const auto comm = MakeSingle();
  EngineOptions options;
  options.replica.micro_batches = {1};
  options.optimizer = test.optimizer;
  options.numerics = test.numerics;
  options.choice = Cuda();
  options.choice.dnn = &standin::OpenDnn;
  const Model model = MakeCaseModel(test);
  const auto engine = ValueOrThrow(MakeEngine(*comm, model, options));
  std::int64_t smaller = engine->memory().device_bytes;
  for (const std::int64_t micro_batch : {100, 1'000, 4'000, 8'000, 20'000}) {
    const auto planned = engine->PlanMemory({.micro_batches = {micro_batch}});
    ASSERT_OK(planned);
    EXPECT_GT(planned->device_bytes, smaller);
    smaller = planned->device_bytes;
  }
  EXPECT_GT(smaller, kBytes);
}

// Before there is such an engine: by one for other sizes, and from the graphs alone.
void ExpectPlansOthers(const EngineCase& test, const Model& model) {
  const auto comm = MakeSingle();
  const auto options = [&](std::int64_t micro_batch, std::int64_t eval_batch) {
    EngineOptions all;
    all.replica.micro_batches = {micro_batch};
    all.replica.eval_batches = {eval_batch};
    if (!test.evaluate) all.replica.eval_batches = {};
    all.replica.effective_batch = 64;
    all.replica.rank_samples = micro_batch;
    all.replica.micro_steps_per_update = test.stats ? 3 : 1;
    all.replica.recompute = test.recompute;
    all.optimizer = test.optimizer;
    all.numerics = test.numerics;
    all.choice = Cuda();
    return all;
  };
  const EngineOptions wanted = options(32, 40);
  EngineMemory by_other;
  {
    const auto other = ValueOrThrow(MakeEngine(*comm, model, options(1, 2)));
    const std::int64_t live = standin::LiveBytes(0);
    by_other = ValueOrThrow(other->PlanMemory(wanted.replica));
    EXPECT_EQ(standin::LiveBytes(0), live) << test.name;
    EXPECT_LT(ValueOrThrow(other->FreeDeviceBytes()), std::int64_t{4} << 30);
  }
  const auto engine = ValueOrThrow(MakeEngine(*comm, model, wanted));
  EXPECT_EQ(by_other.device_bytes, engine->memory().device_bytes) << test.name;
  EXPECT_EQ(by_other.host_bytes, engine->memory().host_bytes) << test.name;
  const auto by_graphs = ValueOrThrow(PlanEngineMemory(model, wanted));
  EXPECT_LT(by_graphs.device_bytes, engine->memory().device_bytes) << test.name;
  // Without scratch, tables and the memory of cuBLASLt: 64 MiB at most.
  EXPECT_GT(by_graphs.device_bytes, engine->memory().device_bytes - (std::int64_t{64} << 20))
      << test.name;
}
void ExpectPlansOthers(const EngineCase& test) { ExpectPlansOthers(test, MakeCaseModel(test)); }

// Convolutions whose columns are more than all activations.
TEST_F(CudaEngineTest, PlansConvolutionColumns) {
  const auto conv = [](std::int64_t in, std::int64_t out) {
    return Conv2dSpec{.in_channels = in, .out_channels = out, .kernel_size = {3}, .padding = {1}};
  };
  ModelSpec spec;
  spec.layer = {{"c1", conv(3, 64)},
                {"r1", ReluSpec{}},
                {"c2", conv(64, 8)},
                {"r2", ReluSpec{}},
                {"p2", MaxPool2dSpec{{2}}},
                {"f", FlattenSpec{}},
                {"fc", LinearSpec{8 * 16 * 16, 10, true}}};
  const auto network = ValueOrThrow(MakeNetwork(spec));
  ExpectPlansOthers({.name = "convolutions"},
                    ValueOrThrow(Model::Make(network, LossKind::kSoftmaxCrossEntropy,
                                             LabelledSample({3, 32, 32}, 10))));
}

TEST_F(CudaEngineTest, PlansOtherSizes) {
  ExpectPlansOthers({.name = "mlp", .widths = {12, 512, 512, 5}});
  ExpectPlansOthers(
      {.name = "bf16", .widths = {12, 512, 512, 5}, .numerics = {.precision = Precision::kBF16}});
  ExpectPlansOthers({.name = "texts", .widths = {64, 64, 5}, .texts = 64, .cut = 16});
  ExpectPlansOthers(
      {.name = "batch_norm", .widths = {12, 512, 512, 5}, .stats = BatchStatistics::kWindow});
  ExpectPlansOthers(
      {.name = "recompute", .widths = {12, 512, 512, 512, 5}, .recompute = Recompute::kBlocks});
  ExpectPlansOthers({.name = "contrastive", .loss = LossKind::kContrastive, .evaluate = false});
}

TEST_F(CudaEngineTest, PlanEqualsAllocation) {
  const EngineCase test{.micro = 8, .target = 8, .updates = 1};
  const auto comm = MakeSingle();
  const Model model = MakeCaseModel(test);
  const auto engine = ValueOrThrow(MakeEngineFor(*comm, model, test));
  const auto planned = static_cast<double>(engine->memory().device_bytes);
  EXPECT_NEAR(static_cast<double>(standin::LiveBytes(0)) / planned, 1, 0.001);
  EXPECT_GT(planned, 3 * 4 * static_cast<double>(model.layout().size()));
}

}  // namespace
}  // namespace gaccd::tests
