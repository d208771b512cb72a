// The engine on a GPU with one rank, over the stand-ins: against the engine on a CPU, and what it
// does when something goes wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "daemon/train/update.h"
#include "tests/unit/base/status_matchers.h"
#include "tests/unit/train/engine_cuda_cases.h"
#include "tests/unit/train/engine_on_gpu.h"

namespace gaccd::tests {
namespace {

using ::testing::HasSubstr;

class CudaEngineCases : public CudaEngineTest, public ::testing::WithParamInterface<EngineCase> {};
INSTANTIATE_TEST_SUITE_P(One, CudaEngineCases, ::testing::ValuesIn(CasesOf(1)),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudaEngineCases, DoesWhatTheCpuDoes) {
  const auto expected = RunOn({}, GetParam());
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  const auto found = RunOn(Cuda(), GetParam());
  ASSERT_TRUE(found.ok()) << found.status().message();
  ExpectSame(*found, *expected, kSame);
}

// Inside every update the accumulators are read, lost and set again, as a checkpoint does it.
TEST_F(CudaEngineTest, AWindowGoesOnAsItWas) {
  const EngineCase test{.name = "window", .micro = 8, .target = 39, .updates = 6};
  const auto with_window = [](Engine& engine, Prefetcher& batches, const Plan& plan,
                              UpdateSettings settings) -> Status {
    settings.samples = plan.effective_batch();
    GACCD_RETURN_IF_ERROR(engine.Begin(settings));
    for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
      const BatchView* batch = batches.Next();
      GACCD_RETURN_IF_ERROR(
          engine.MicroStep(*batch, {.first = step == 0, .last = step + 1 == plan.accum_steps()}));
      if (step != 2) continue;
      GACCD_ASSIGN_OR_RETURN(const WindowShare share, engine.Window());
      std::vector<float> window(static_cast<std::size_t>(ModelOf({}).layout().size()));
      GACCD_RETURN_IF_ERROR(engine.Read(EngineBuffer::kGradients, 0, window));
      EXPECT_EQ(share.samples,
                plan.MicroBatch(0, 0) + plan.MicroBatch(0, 1) + plan.MicroBatch(0, 2));
      GACCD_RETURN_IF_ERROR(engine.SetWindow(std::vector<float>(window.size()), {}));
      GACCD_RETURN_IF_ERROR(engine.SetWindow(window, share));
    }
    GACCD_RETURN_IF_ERROR(engine.Reduce());
    GACCD_RETURN_IF_ERROR(engine.MeasureGradient());
    GACCD_RETURN_IF_ERROR(engine.Audit());
    GACCD_RETURN_IF_ERROR(engine.Optimize());
    return engine.End();
  };
  for (const EngineChoice& choice : {EngineChoice{}, Cuda()}) {
    EngineCase exact = test;
    exact.numerics.deterministic = true;
    const auto plain = RunOn(choice, exact);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    const auto found = RunOn(choice, exact, {.update = with_window});
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(found->parameters, plain->parameters) << Name(choice.device);
    EXPECT_EQ(found->results.back().loss, plain->results.back().loss);
  }
}

// Work that comes late on any stream changes no bit: every order that matters is an event.
TEST_P(CudaEngineCases, DelaysChangeNothing) {
  EngineCase test = GetParam();
  test.numerics.deterministic = true;  // no algorithm is chosen by its time
  const auto expected = RunOn(Cuda(), test);
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    standin::SetDelays(seed, 100);
    const auto found = RunOn(Cuda(), test);
    standin::SetDelays(0, 0);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(Distance(found->parameters, expected->parameters), 0) << "seed " << seed;
  }
}

// 8 bits of mantissa, or 11: the first loss is off by their rounding, later ones by what it grew
// to. The loss scale of fp16 is seen in nothing.
TEST_P(CudaEngineCases, In16BitsItStaysNearF32) {
  EngineCase test = GetParam();
  const auto expected = RunOn({}, test, {.gradients = true});
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  for (const bool fp16 : {false, true}) {
    test.numerics.precision = fp16 ? Precision::kFP16 : Precision::kBF16;
    test.loss_scale = fp16 ? 1024 : 1;
    const double rounding = fp16 ? 1.0 / 8 : 1;
    const auto found = RunOn(Cuda(), test, {.gradients = true});
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_NEAR(found->results[0].loss / expected->results[0].loss, 1, 0.02 * rounding);
    EXPECT_NE(found->results[0].loss, expected->results[0].loss);
    EXPECT_NEAR(found->results[0].grad_norm / expected->results[0].grad_norm, 1, 0.1 * rounding);
    EXPECT_LE(Distance(found->gradients[0], expected->gradients[0]), 0.2 * rounding);
    EXPECT_LE(Distance(found->parameters, expected->parameters), 0.1 * rounding);
    EXPECT_LT(found->results.back().loss, 1.1 * expected->results.back().loss);
  }
}

// A micro-batch by itself, after an update.
TEST_P(CudaEngineCases, AProbeFindsWhatTheCpuFinds) {
  EngineCase test = GetParam();
  test.updates = 2;
  const auto probe = [&](const EngineChoice& choice, double* loss, std::vector<float>* gradients) {
    const auto update = [&](Engine& engine, Prefetcher& batches, const Plan& plan,
                            const UpdateSettings& settings) -> Status {
      if (settings.update == 0) {
        return RunUpdate(engine, batches, GeneratorOf(test.loss)(plan), settings);
      }
      GACCD_ASSIGN_OR_RETURN(*loss, engine.Probe(*batches.Next()));
      gradients->resize(static_cast<std::size_t>(ModelOf(test).layout().size()));
      return engine.GetGradients(*gradients);
    };
    // The run ends here: a probe leaves no result.
    EXPECT_THAT(RunOn(choice, test, {.gradients = true, .update = update}),
                HasMessage(HasSubstr("no result came")));
  };
  double expected = 0;
  double found = 0;
  std::vector<float> expected_gradients;
  std::vector<float> found_gradients;
  probe({}, &expected, &expected_gradients);
  probe(Cuda(), &found, &found_gradients);
  EXPECT_NEAR(found, expected, kSame * expected);
  EXPECT_GT(expected, 0);
  EXPECT_LE(Distance(found_gradients, expected_gradients), kSame);
}

TEST_F(CudaEngineTest, TheHostDoesNotWaitInsideAnUpdate) {
  standin::Counters before;
  standin::Counters after;
  const EngineCase test{.micro = 5, .target = 23, .updates = 30};
  const auto run = RunOn(Cuda(), test,
                         {.before_updates = [&] { before = standin::Count(); },
                          .after_updates = [&] { after = standin::Count(); }});
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(after.host_waits, before.host_waits);
  EXPECT_EQ(after.mallocs, before.mallocs);
  // A micro-step is one launch of a graph; beside it two copies, and none of its kernels. An update
  // copies its settings, its control words and its result.
  EXPECT_EQ(after.graph_launches - before.graph_launches, 30 * 5);
  const std::int64_t updates = 30;
  EXPECT_LE(after.copies - before.copies, updates * (5 * 2 + 3));
  EXPECT_LE(after.kernels - before.kernels, updates * 6);
}

// The check above can fail: a wait is counted.
TEST_F(CudaEngineTest, AWaitWouldBeCounted) {
  const standin::Counters before = standin::Count();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_GT(standin::Count().host_waits, before.host_waits);
}

// The usual mistakes of accumulation show in the same comparison.
TEST_F(CudaEngineTest, MistakesAreSeen) {
  const EngineCase test{
      .micro = 5, .target = 23, .updates = 2, .optimizer = {.lr = 0.2, .kind = SgdSpec{}}};
  const auto expected = RunOn({}, test, {.gradients = true});
  ASSERT_TRUE(expected.ok());
  const auto right = RunOn(Cuda(), test, {.gradients = true});
  ASSERT_TRUE(right.ok());
  EXPECT_LE(Distance(right->gradients[0], expected->gradients[0]), 1e-6);
  enum class Mistake { kLastOnly, kWrongWeight };
  for (const Mistake mistake : {Mistake::kLastOnly, Mistake::kWrongWeight}) {
    const auto update = [&](Engine& engine, Prefetcher& batches, const Plan& plan,
                            UpdateSettings settings) -> Status {
      // The weight is 1/samples; the audit is told the same wrong number, and believes it.
      settings.samples = plan.effective_batch() + (mistake == Mistake::kWrongWeight ? 1 : 0);
      GACCD_RETURN_IF_ERROR(engine.Begin(settings));
      for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
        const bool first = step == 0 || mistake == Mistake::kLastOnly;
        GACCD_RETURN_IF_ERROR(engine.MicroStep(
            *batches.Next(), {.first = first, .last = step + 1 == plan.accum_steps()}));
      }
      GACCD_RETURN_IF_ERROR(engine.Reduce());
      std::vector<float> gradients(expected->gradients[0].size());
      GACCD_RETURN_IF_ERROR(engine.GetGradients(gradients));
      EXPECT_GT(Distance(gradients, expected->gradients[0]), 1e-2);
      GACCD_RETURN_IF_ERROR(engine.MeasureGradient());
      GACCD_RETURN_IF_ERROR(engine.Audit());
      GACCD_RETURN_IF_ERROR(engine.Optimize());
      return engine.End();
    };
    // Both are also caught by the audit: the counts on the GPU are not those of the plan.
    const auto wrong = RunOn(Cuda(), test, {.update = update});
    ASSERT_FALSE(wrong.ok());
    EXPECT_THAT(wrong, HasKind(ErrorKind::kInternal));
    EXPECT_THAT(wrong, HasMessage(HasSubstr("sample audit")));
  }
}

// A micro-batch that is lost: the audit names both counts, and the parameters stay.
TEST_F(CudaEngineTest, ALostMicroBatchStopsTheRun) {
  const EngineCase test{.micro = 5, .target = 23, .updates = 3};
  std::int64_t updates = 0;
  std::vector<float> before;
  std::vector<float> left;
  const auto lose = [&](Engine& engine, Prefetcher& batches, const Plan& plan,
                        UpdateSettings settings) -> Status {
    settings.samples = plan.effective_batch();
    if (updates == 1) {
      before.resize(static_cast<std::size_t>(ModelOf(test).layout().size()));
      GACCD_RETURN_IF_ERROR(engine.GetParameters(before));
    }
    GACCD_RETURN_IF_ERROR(engine.Begin(settings));
    for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
      const BatchView* batch = batches.Next();
      const bool lost = updates == 1 && step == 2;
      GACCD_RETURN_IF_ERROR(
          engine.MicroStep(lost ? BatchView{} : *batch,
                           {.first = step == 0, .last = step + 1 == plan.accum_steps()}));
    }
    ++updates;
    GACCD_RETURN_IF_ERROR(engine.Reduce());
    GACCD_RETURN_IF_ERROR(engine.MeasureGradient());
    GACCD_RETURN_IF_ERROR(engine.Audit());
    GACCD_RETURN_IF_ERROR(engine.Optimize());
    return engine.End();
  };
  std::int64_t counted = 0;
  for (const EngineChoice& choice : {EngineChoice{}, Cuda()}) {
    updates = 0;
    const auto run =
        RunOn(choice, test,
              {.update = lose,
               .failed = [&](const Status&, std::span<const float> parameters, std::int64_t done) {
                 left.assign(parameters.begin(), parameters.end());
                 counted = done;
               }});
    ASSERT_FALSE(run.ok());
    EXPECT_THAT(run, HasKind(ErrorKind::kInternal));
    EXPECT_THAT(run, HasMessage(HasSubstr("the plan has 23 samples")));
    EXPECT_THAT(run, HasMessage(HasSubstr("the ranks counted 18")));
    EXPECT_EQ(left, before);
    EXPECT_EQ(counted, 1);
  }
}

// Divergence: the parameters are those of the update before, although the next one had begun.
TEST_F(CudaEngineTest, NanStopsTheRunAndChangesNothing) {
  const EngineCase test{.micro = 5, .target = 13, .updates = 9, .poisoned = 30};
  std::vector<std::vector<float>> left;
  std::vector<std::int64_t> updates;
  for (const EngineChoice& choice : {EngineChoice{}, Cuda()}) {
    const auto run =
        RunOn(choice, test,
              {.failed = [&](const Status&, std::span<const float> parameters, std::int64_t done) {
                left.emplace_back(parameters.begin(), parameters.end());
                updates.push_back(done);
              }});
    ASSERT_FALSE(run.ok());
    EXPECT_THAT(run, HasKind(ErrorKind::kNoRequeue));
    EXPECT_THAT(run, HasMessage(HasSubstr("diverged")));
  }
  ASSERT_EQ(left.size(), 2U);
  for (const float p : left[1]) ASSERT_TRUE(std::isfinite(p));
  EXPECT_LE(Distance(left[1], left[0]), kSame);
  EXPECT_EQ(updates[1], updates[0]);
}

TEST_F(CudaEngineTest, RefusesNumericsThatACpuHasNot) {
  const auto run = RunOn({}, {.micro = 8, .target = 8, .updates = 1, .numerics = {.tf32 = true}});
  ASSERT_FALSE(run.ok());
  EXPECT_THAT(run, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(run, HasMessage(HasSubstr("CPU")));
}

TEST_F(CudaEngineTest, AsksForTheResult) {
  const EngineCase test{.micro = 8, .target = 8, .updates = 9};
  for (const EngineChoice& choice : {EngineChoice{}, Cuda()}) {
    int updates = 0;
    const auto begin = [&](Engine& engine, Prefetcher&, const Plan& plan,
                           UpdateSettings settings) -> Status {
      settings.samples = plan.effective_batch();
      const auto update = [&]() -> Status {
        GACCD_RETURN_IF_ERROR(engine.Begin(settings));
        ++updates;
        GACCD_RETURN_IF_ERROR(engine.MicroStep({}, {.first = true, .last = true}));
        GACCD_RETURN_IF_ERROR(engine.Reduce());
        GACCD_RETURN_IF_ERROR(engine.MeasureGradient());
        GACCD_RETURN_IF_ERROR(engine.Audit());
        GACCD_RETURN_IF_ERROR(engine.Optimize());
        return engine.End();
      };
      for (int i = 0; i < 5; ++i) GACCD_RETURN_IF_ERROR(update());
      return Status::Ok();
    };
    const auto run = RunOn(choice, test, {.update = begin});
    ASSERT_FALSE(run.ok());
    EXPECT_THAT(run, HasKind(ErrorKind::kInternal));
    EXPECT_THAT(run, HasMessage(HasSubstr("results")));
    EXPECT_EQ(updates, choice.device == Device::kCpu ? 1 : 2);
  }
}

// Every call of CUDA may fail, at any moment: always a Status, and nothing is left.
class CudaFailures : public CudaEngineTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Calls, CudaFailures,
                         ::testing::Values("cudaSetDevice", "cudaStreamCreateWithPriority",
                                           "cudaEventCreateWithFlags", "cudaMalloc",
                                           "cudaHostAlloc", "cudaMemset", "cudaMemcpyAsync",
                                           "cudaEventRecord", "cudaStreamWaitEvent",
                                           "cudaEventQuery", "cudaEventElapsedTime",
                                           "cudaGraphInstantiate", "cudaGraphLaunch",
                                           "cudaStreamBeginCapture", "cudaMemGetInfo", "kernel"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(CudaFailures, GiveAStatusAndLeaveNothing) {
  const EngineCase test{.micro = 5, .target = 13, .updates = 4, .tail = 4};
  int failures = 0;
  for (int nth = 1; nth < 2000; nth = nth < 40 ? nth + 3 : nth + nth / 3) {
    standin::Reset();
    standin::FailCall(GetParam(), nth, cudaErrorLaunchFailure);
    const auto run = RunOn(Cuda(), test);
    if (run.ok()) break;
    ++failures;
    EXPECT_NE(run.status().message(), "");
    EXPECT_EQ(standin::LiveBytes(0), 0) << nth;
    EXPECT_EQ(standin::LiveBytes(-1), 0) << nth;
  }
  EXPECT_GT(failures, 0);
}

// A kernel that goes wrong takes the GPU with it.
TEST_F(CudaEngineTest, AFailingKernelEndsTheRun) {
  const EngineCase test{.micro = 5, .target = 13, .updates = 4};
  for (const int nth : {1, 10, 100, 200}) {
    standin::Reset();
    standin::FailKernel(nth, cudaErrorIllegalAddress);
    const auto run = RunOn(Cuda(), test);
    ASSERT_FALSE(run.ok());
    EXPECT_THAT(run, HasKind(ErrorKind::kUnavailable));
    EXPECT_THAT(run, HasMessage(HasSubstr("cudaErrorIllegalAddress")));
  }
  standin::Reset();
}

}  // namespace
}  // namespace gaccd::tests
