// The engine on a GPU against the engine on the CPU: k ragged micro-batches are one big batch, and
// the two well-known mistakes show; updates, evaluation and bad values do the same on both.
#include "daemon/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "collectives/comm/communicator.h"
#include "collectives/comm/nccl_comm.h"
#include "daemon/device/cuda/device_memory.h"
#include "tests/gpu/gpu_test.h"
#include "tests/support/model_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr std::uint64_t kSeed = 3;
// f32 sums in another order on 100-odd terms.
constexpr double kSameF32 = 2e-6;
// bf16 keeps 8 bits of every value in between; PyTorch's autocast deviates by 2 to 5 % here.
constexpr double kSameBF16 = 8e-2;
// On one device in one precision, micro-batches change only the order of f32 sums.
constexpr double kSameInPieces = 1e-5;

struct Problem {
  explicit Problem(LossKind loss)
      : loss_kind(loss),
        widths{48, 64, 40, loss == LossKind::kMeanSquaredError ? 8 : 16},
        model(MakeMlp(widths, loss)),
        samples(MakeSampleSpec(widths, loss), 200, kSeed) {}

  [[nodiscard]] std::size_t elements() const {
    return static_cast<std::size_t>(model.layout().size());
  }

  LossKind loss_kind;
  std::vector<std::int64_t> widths;
  Model model;
  Samples samples;
};

// One rank's engine with the weights of kSeed.
class Rank {
 public:
  // overlap: gradients go through a NCCL communicator of one rank, each as a message of its own,
  // during the backward pass.
  Rank(const Problem& problem, Device device, Precision precision, const OptimizerSpec& optimizer,
       std::set<std::int64_t> micro_batches, bool overlap = false)
      : comm_(MakeSingle()), elements_(problem.elements()) {
    EngineOptions options;
    options.replica = {.micro_batches = std::move(micro_batches), .eval_batches = {50}};
    options.optimizer = optimizer;
    options.numerics = {.precision = precision, .deterministic = true};
    options.choice = {.device = device, .cublaslt = CublasLtOfTest()};
    if (overlap) {
      nccl_ = ValueOrThrow(MakeNccl(*comm_, {.api = NcclOfTest()}));
      options.choice.always_overlap = true;
      options.choice.bucket_elements = 1;
    }
    engine_ = ValueOrThrow(MakeEngine(overlap ? *nccl_ : *comm_, problem.model, options));
    std::vector<float> weights(elements_);
    problem.model.Initialize(kSeed, weights);
    Check(engine_->SetParameters(weights));
  }

  [[nodiscard]] bool made() const { return engine_ != nullptr; }
  Engine& engine() { return *engine_; }

  static void Check(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

  // One update over these micro-batches, which follow each other in `samples`.
  // every_step_is_first: the mistake that forgets all but the last.
  Result<std::optional<UpdateResult>> Update(Samples& samples, std::span<const std::int64_t> steps,
                                             UpdateSettings settings, std::int64_t first = 0,
                                             bool every_step_is_first = false) {
    settings.samples = std::accumulate(steps.begin(), steps.end(), std::int64_t{0});
    Check(engine_->Begin(settings));
    for (std::size_t j = 0; j < steps.size(); ++j) {
      Check(engine_->MicroStep(
          samples.View(first, steps[j]),
          {.first = every_step_is_first || j == 0, .last = j + 1 == steps.size()}));
      first += steps[j];
    }
    Check(engine_->Reduce());
    Check(engine_->MeasureGradient());
    Check(engine_->Audit());
    Check(engine_->Optimize());
    Check(engine_->End());
    return engine_->PopResult(/*wait=*/true);
  }

  std::vector<float> Gradients() {
    std::vector<float> values(elements_);
    Check(engine_->GetGradients(values));
    return values;
  }
  std::vector<float> Parameters() {
    std::vector<float> values(elements_);
    Check(engine_->GetParameters(values));
    return values;
  }

 private:
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<Communicator> nccl_;
  std::size_t elements_;
  std::unique_ptr<Engine> engine_;
};

const OptimizerSpec kStill{.lr = 0, .kind = SgdSpec{}};
const std::vector<std::int64_t> kRagged{33, 33, 32, 9};
const std::vector<std::int64_t> kBig{107};
const std::set<std::int64_t> kSizes{33, 32, 9, 107};

// The gradient of one big batch: what has to come out.
std::vector<float> BigBatch(Problem& problem, Device device, Precision precision) {
  Rank rank(problem, device, precision, kStill, kSizes);
  if (!rank.made()) return {};
  EXPECT_OK(rank.Update(problem.samples, kBig, {}));
  return rank.Gradients();
}

struct Setting {
  const char* name;
  LossKind loss;
  Precision precision;
  [[nodiscard]] double same() const { return precision == Precision::kF32 ? kSameF32 : kSameBF16; }
};

// What the memory check leaves room for: code of kernels, graphs, rounding. In a process of its
// own, for code is loaded once; other processes would be counted.
TEST(EngineMemoryTest, ReserveCoversUnplannedMemory) {
  const auto free_bytes = [] {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return static_cast<std::int64_t>(free);
  };
  Problem problem(LossKind::kSoftmaxCrossEntropy);
  const std::int64_t before = free_bytes();
  Rank gpu(problem, Device::kCuda, Precision::kBF16, {.lr = 0.1, .kind = SgdSpec{}}, kSizes);
  ASSERT_TRUE(gpu.made());
  ASSERT_TRUE(gpu.Update(problem.samples, kRagged, {.lr = 0.1}).ok());
  const std::int64_t unplanned = before - free_bytes() - gpu.engine().memory().device_bytes;
  const bool holds = unplanned <= DeviceMemory::kReserveBytes;
  PrintRow("memory of the GPU that no plan has", holds,
           StrCat("at most ", DeviceMemory::kReserveBytes >> 20, " MiB"),
           StrCat(unplanned >> 20, " MiB"));
  EXPECT_TRUE(holds);
}

class EngineTest : public testing::TestWithParam<Setting> {};

TEST_P(EngineTest, RaggedMicroBatchesEqualOneBigBatch) {
  Problem problem(GetParam().loss);
  const Precision precision = GetParam().precision;
  const std::vector<float> on_cpu = BigBatch(problem, Device::kCpu, Precision::kF32);
  const std::vector<float> expected = BigBatch(problem, Device::kCuda, precision);
  EXPECT_LT(RelativeDifference(expected, on_cpu), GetParam().same());
  Rank gpu(problem, Device::kCuda, precision, kStill, kSizes);
  ASSERT_TRUE(gpu.made());
  for (int again = 0; again < 3; ++again) {  // over what the update before left behind
    const auto result = ValueOrThrow(gpu.Update(problem.samples, kRagged, {}));
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->samples, 107);
    EXPECT_LT(RelativeDifference(gpu.Gradients(), expected), kSameInPieces);
  }
}

TEST_P(EngineTest, DetectsMeanOfMeans) {
  Problem problem(GetParam().loss);
  const std::vector<float> expected = BigBatch(problem, Device::kCuda, GetParam().precision);
  Rank gpu(problem, Device::kCuda, GetParam().precision, kStill, kSizes);
  ASSERT_TRUE(gpu.made());
  std::vector<float> mean(expected.size(), 0);
  std::int64_t first = 0;
  for (const std::int64_t step : kRagged) {
    ASSERT_TRUE(gpu.Update(problem.samples, std::span(&step, 1), {}, first).ok());
    first += step;
    const std::vector<float> part = gpu.Gradients();
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += part[i] / static_cast<float>(kRagged.size());
    }
  }
  EXPECT_GT(RelativeDifference(mean, expected), 100 * kSameInPieces);
}

TEST_P(EngineTest, AuditDetectsLastMicroBatchOnly) {
  Problem problem(GetParam().loss);
  const std::vector<float> expected = BigBatch(problem, Device::kCuda, GetParam().precision);
  Rank gpu(problem, Device::kCuda, GetParam().precision, kStill, kSizes);
  ASSERT_TRUE(gpu.made());
  EXPECT_THAT(gpu.Update(problem.samples, kRagged, {}, 0, /*every_step_is_first=*/true),
              HasKind(ErrorKind::kInternal));
  EXPECT_GT(RelativeDifference(gpu.Gradients(), expected), 100 * kSameInPieces);
}

TEST_P(EngineTest, UpdatesEqualCpu) {
  const OptimizerSpec optimizers[] = {
      {.lr = 0.05, .kind = SgdSpec{.momentum = 0.9, .weight_decay = 1e-3, .nesterov = true}},
      {.lr = 1e-3, .kind = AdamWSpec{}}};
  for (const OptimizerSpec& optimizer : optimizers) {
    Problem problem(GetParam().loss);
    Rank cpu(problem, Device::kCpu, Precision::kF32, optimizer, kSizes);
    Rank gpu(problem, Device::kCuda, GetParam().precision, optimizer, kSizes);
    ASSERT_TRUE(cpu.made() && gpu.made());
    for (int update = 0; update < 6; ++update) {
      // Clips in some updates and not in others.
      const UpdateSettings settings{.lr = optimizer.lr, .clip_norm = update % 2 == 0 ? 0.05 : 100};
      const auto expected = cpu.Update(problem.samples, kRagged, settings, update * 10);
      const auto found = gpu.Update(problem.samples, kRagged, settings, update * 10);
      ASSERT_TRUE(expected.ok() && expected->has_value()) << expected.status().message();
      ASSERT_TRUE(found.ok() && found->has_value()) << found.status().message();
      const double same = GetParam().precision == Precision::kF32 ? 1e-5 : 8e-2;
      EXPECT_NEAR((*found)->loss, (*expected)->loss, same * (*expected)->loss);
      EXPECT_NEAR((*found)->grad_norm, (*expected)->grad_norm, same * (*expected)->grad_norm);
    }
    // AdamW turns the sign of a gradient that is all but 0 into a whole step.
    const double same = GetParam().precision == Precision::kF32 ? 1e-4 : 8e-2;
    EXPECT_LT(RelativeDifference(gpu.Parameters(), cpu.Parameters()), same);
  }
}

TEST_P(EngineTest, EvaluationEqualsCpu) {
  Problem problem(GetParam().loss);
  Rank cpu(problem, Device::kCpu, Precision::kF32, kStill, kSizes);
  Rank gpu(problem, Device::kCuda, GetParam().precision, kStill, kSizes);
  ASSERT_TRUE(cpu.made() && gpu.made());
  const auto expected = cpu.engine().Evaluate(problem.samples.View(0, 50));
  const auto found = gpu.engine().Evaluate(problem.samples.View(0, 50));
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->samples, 50);
  EXPECT_NEAR(found->loss_sum, expected->loss_sum, GetParam().same() * expected->loss_sum);
  // Rounding may turn a row whose two largest logits are neighbours.
  EXPECT_EQ(found->ranks.size(), expected->ranks.size());
  EXPECT_NEAR(static_cast<double>(std::ranges::count(found->ranks, 0)),
              static_cast<double>(std::ranges::count(expected->ranks, 0)),
              GetParam().precision == Precision::kF32 ? 0 : 2);
  ASSERT_EQ(found->prediction.size(), expected->prediction.size());
  if (!found->prediction.empty()) {
    EXPECT_LT(RelativeDifference(found->prediction, expected->prediction), GetParam().same());
  }
}

// Also a NaN after a ReLU, whatever the ReLU of cuBLASLt makes of it.
TEST_P(EngineTest, EvaluationReportsNonFiniteParameter) {
  Problem problem(GetParam().loss);
  Rank gpu(problem, Device::kCuda, GetParam().precision, kStill, kSizes);
  ASSERT_TRUE(gpu.made());
  std::vector<float> weights = gpu.Parameters();
  weights[0] = std::numeric_limits<float>::quiet_NaN();
  Rank::Check(gpu.engine().SetParameters(weights));
  const auto found = ValueOrThrow(gpu.engine().Evaluate(problem.samples.View(0, 50)));
  EXPECT_FALSE(std::isfinite(found.loss_sum));
}

TEST_P(EngineTest, NonFiniteValueStopsAndKeepsParameters) {
  Problem problem(GetParam().loss);
  Rank gpu(problem, Device::kCuda, GetParam().precision, {.lr = 0.1, .kind = SgdSpec{}}, kSizes);
  ASSERT_TRUE(gpu.made());
  ASSERT_TRUE(gpu.Update(problem.samples, kRagged, {.lr = 0.1}).ok());
  const std::vector<float> before = gpu.Parameters();
  problem.samples.features[40 * 48] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(gpu.Update(problem.samples, kRagged, {.lr = 0.1}), HasKind(ErrorKind::kNoRequeue));
  EXPECT_EQ(gpu.Parameters(), before);
}

// Marks inside of graphs, waits for them on another stream, NCCL's calls between graphs: the path
// of many GPUs, on one. (A sum of one rank moves no data.)
TEST_P(EngineTest, ReductionsDuringBackwardDoNotChangeResults) {
  if (NcclOfTest() == nullptr && !LoadNccl().ok()) {
    PrintSkip("engine with reductions during the backward", "no NCCL");
    GTEST_SKIP() << LoadNccl().status().message();
  }
  const int updates = NcclOfTest() == nullptr ? 1000 : 20;
  const OptimizerSpec sgd{.lr = 0.01, .kind = SgdSpec{}};
  Problem problem(GetParam().loss);
  Rank plain(problem, Device::kCuda, GetParam().precision, sgd, kSizes);
  Rank overlapped(problem, Device::kCuda, GetParam().precision, sgd, kSizes, /*overlap=*/true);
  ASSERT_TRUE(plain.made() && overlapped.made());
  for (int update = 0; update < updates; ++update) {
    const UpdateSettings settings{.lr = sgd.lr, .clip_norm = 1};
    for (Rank* rank : {&plain, &overlapped}) {
      ASSERT_OK(rank->Update(problem.samples, kRagged, settings, update % 90));
    }
  }
  const bool equal = overlapped.Parameters() == plain.Parameters();
  PrintRow(StrCat("engine with reductions during the backward (one rank: NCCL moves nothing), ",
                  GetParam().name),
           equal, StrCat("the bits of one without, after ", updates, " updates"),
           equal ? "the same" : "others");
  EXPECT_TRUE(equal);
}

INSTANTIATE_TEST_SUITE_P(
    All, EngineTest,
    testing::Values(Setting{"cross_entropy_f32", LossKind::kSoftmaxCrossEntropy, Precision::kF32},
                    Setting{"cross_entropy_bf16", LossKind::kSoftmaxCrossEntropy, Precision::kBF16},
                    Setting{"cross_entropy_fp16", LossKind::kSoftmaxCrossEntropy, Precision::kFP16},
                    Setting{"squared_error_f32", LossKind::kMeanSquaredError, Precision::kF32},
                    Setting{"squared_error_bf16", LossKind::kMeanSquaredError, Precision::kBF16}),
    [](const auto& setting) { return std::string(setting.param.name); });

}  // namespace
}  // namespace gaccd
