// The engine on a GPU with one rank, over the stand-ins: against the engine on a CPU, and what it
// does when something goes wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/optim/measure.h"
#include "daemon/train/update.h"
#include "tests/sanitized.h"
#include "tests/support/engine_cuda_cases.h"
#include "tests/support/engine_on_gpu.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

class CudaEngineCases : public CudaEngineTest, public ::testing::WithParamInterface<EngineCase> {};
INSTANTIATE_TEST_SUITE_P(One, CudaEngineCases, ::testing::ValuesIn(MakeCudaCases(1)),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudaEngineCases, EqualsCpu) {
  const auto expected = ValueOrThrow(RunOn({}, GetParam()));
  const auto found = ValueOrThrow(RunOn(Cuda(), GetParam()));
  ExpectSame(found, expected, kSame);
}

// Inside every update the accumulators are read, lost and set again, as a checkpoint does it.
TEST_F(CudaEngineTest, ResumesInsideUpdate) {
  const EngineCase test{.name = "window", .micro = 8, .target = 39, .updates = 6};
  const auto with_window = [](Engine& engine, Prefetcher& batches, const Plan& plan,
                              const UpdateSettings& settings) {
    const auto save_and_restore = [&](std::int64_t done) -> Result<bool> {
      if (done != 3) return false;
      EXPECT_EQ(engine.optimizer_updates(), settings.update) << "this one has not ended";
      GACCD_ASSIGN_OR_RETURN(const PartialUpdate share, engine.GetPartialUpdate());
      std::vector<float> window(static_cast<std::size_t>(MakeCaseModel({}).layout().size()));
      GACCD_RETURN_IF_ERROR(engine.Read(EngineBuffer::kGradients, 0, window));
      EXPECT_EQ(share.samples,
                plan.MicroBatch(0, 0) + plan.MicroBatch(0, 1) + plan.MicroBatch(0, 2));
      GACCD_RETURN_IF_ERROR(engine.SetPartialUpdate(std::vector<float>(window.size()), {}));
      GACCD_RETURN_IF_ERROR(engine.SetPartialUpdate(window, share));
      return false;
    };
    return RunUpdate(engine, batches, PlainAccumulation(plan), settings,
                     {.on_progress = {}, .should_stop = save_and_restore});
  };
  for (const EngineChoice& choice : {EngineChoice{}, Cuda()}) {
    EngineCase exact = test;
    exact.numerics.deterministic = true;
    const auto plain = ValueOrThrow(RunOn(choice, exact));
    const auto found = ValueOrThrow(RunOn(choice, exact, {.update = with_window}));
    EXPECT_EQ(found.parameters, plain.parameters) << Name(choice.device);
    EXPECT_EQ(found.results.back().loss, plain.results.back().loss);
  }
}

// Work that comes late on any stream changes no bit: every order that matters is an event.
TEST_P(CudaEngineCases, DelaysDoNotChangeResults) {
  EngineCase test = GetParam();
  test.numerics.deterministic = true;  // no algorithm is chosen by its time
  const auto expected = ValueOrThrow(RunOn(Cuda(), test));
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 1 : 3); ++seed) {
    standin::SetDelays(seed, 100);
    const auto found = RunOn(Cuda(), test);
    standin::SetDelays(0, 0);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(Distance(found->parameters, expected.parameters), 0) << "seed " << seed;
  }
}

// Both runs of a block are the same kernels on the same values.
TEST_P(CudaEngineCases, RecomputedBlocksAreBitIdentical) {
  EngineCase test = GetParam();
  test.updates = 2;
  test.numerics.deterministic = true;
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    test.numerics.precision = precision;
    test.recompute = Recompute::kNone;
    const auto expected = ValueOrThrow(RunOn(Cuda(), test));
    test.recompute = Recompute::kBlocks;
    const auto found = ValueOrThrow(RunOn(Cuda(), test));
    EXPECT_EQ(Distance(found.parameters, expected.parameters), 0) << Name(precision);
  }
}

// 8 bits of mantissa, or 11: the first loss is off by their rounding, later ones by what it grew
// to. The loss scale of fp16 is seen in nothing.
TEST_P(CudaEngineCases, IsNearF32In16Bits) {
  EngineCase test = GetParam();
  const auto expected = ValueOrThrow(RunOn({}, test, {.gradients = true}));
  for (const bool fp16 : {false, true}) {
    test.numerics.precision = fp16 ? Precision::kFP16 : Precision::kBF16;
    test.loss_scale = fp16 ? 1024 : 1;
    const double rounding = fp16 ? 1.0 / 8 : 1;
    const auto found = ValueOrThrow(RunOn(Cuda(), test, {.gradients = true}));
    EXPECT_NEAR(found.results[0].loss / expected.results[0].loss, 1, 0.02 * rounding);
    EXPECT_NE(found.results[0].loss, expected.results[0].loss);
    EXPECT_NEAR(found.results[0].grad_norm / expected.results[0].grad_norm, 1, 0.1 * rounding);
    EXPECT_LE(Distance(found.gradients[0], expected.gradients[0]), 0.2 * rounding);
    EXPECT_NEAR(Projection(found.gradients[0], expected.gradients[0]), 1, 0.02 * rounding);
    EXPECT_LE(Distance(found.parameters, expected.parameters), 0.1 * rounding);
    EXPECT_LT(found.results.back().loss, 1.1 * expected.results.back().loss);
  }
}

// A micro-batch by itself, after an update.
TEST_P(CudaEngineCases, ProbeEqualsCpuProbe) {
  EngineCase test = GetParam();
  if (MakeCaseModel(test).update_sums() > 0) return;  // Engine::can_probe()
  test.updates = 2;
  const auto probe = [&](const EngineChoice& choice, double* loss, std::vector<float>* gradients) {
    const auto update = [&](Engine& engine, Prefetcher& batches, const Plan& plan,
                            const UpdateSettings& settings) -> Status {
      if (settings.update == 0) {
        return RunUpdate(engine, batches, SelectProgramGenerator(test.loss, 0)(plan), settings);
      }
      GACCD_ASSIGN_OR_RETURN(*loss, engine.Probe(*batches.Next()));
      gradients->resize(static_cast<std::size_t>(MakeCaseModel(test).layout().size()));
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

// A device has begun the update after the one that is found wrong; a probe has the settings of the
// wrong one all the same.
TEST_F(CudaEngineTest, ProbeIsOfFailedUpdate) {
  const EngineCase test{.name = "probe", .updates = 3};
  const auto probe = [&](const EngineChoice& choice, std::vector<float>* gradients) {
    const auto update = [&](Engine& engine, Prefetcher& batches, const Plan& plan,
                            UpdateSettings settings) -> Status {
      const UpdateProgram program = SelectProgramGenerator(test.loss, 0)(plan);
      settings.samples = program.samples + 1;  // more than will be counted
      GACCD_RETURN_IF_ERROR(RunUpdate(engine, batches, program, settings));
      settings.samples = 4 * program.samples;
      for (int ahead = 0; ahead < engine.updates_in_flight(); ++ahead) {
        ++settings.update;
        GACCD_RETURN_IF_ERROR(RunUpdate(engine, batches, program, settings));
      }
      EXPECT_EQ(engine.updates_in_flight(), choice.device == Device::kCuda ? 1 : 0);
      EXPECT_FALSE(engine.PopResult(/*wait=*/true).ok());
      // Of the third update, on both devices.
      for (std::int64_t i = 0; engine.updates_in_flight() == 0 && i < program.computed; ++i) {
        (void)batches.Next();
      }
      GACCD_RETURN_IF_ERROR(engine.Probe(*batches.Next()).status());
      gradients->resize(static_cast<std::size_t>(MakeCaseModel(test).layout().size()));
      GACCD_RETURN_IF_ERROR(engine.GetGradients(*gradients));
      return {ErrorKind::kInterrupted, "probed"};
    };
    EXPECT_THAT(RunOn(choice, test, {.update = update}), HasMessage(HasSubstr("probed")));
  };
  std::vector<float> expected;
  std::vector<float> found;
  probe({}, &expected);
  probe(Cuda(), &found);
  EXPECT_LE(Distance(found, expected), kSame);
}

// An update that is not finite leaves the running statistics as they were.
TEST_F(CudaEngineTest, SkippedUpdateKeepsStatistics) {
  for (const BatchStatistics stats : {BatchStatistics::kWindow, BatchStatistics::kMicro}) {
    const EngineCase test{.name = "skipped",
                          .micro = 5,
                          .target = 13,
                          .updates = 6,
                          .poisoned = 20,
                          .tolerate_nonfinite = true,
                          .stats = stats,
                          .evaluate = false};
    const auto expected = ValueOrThrow(RunOn({}, test));
    const auto found = ValueOrThrow(RunOn(Cuda(), test));
    const auto skipped = [](const EngineRun& run) {
      return std::ranges::count_if(run.results, [](const auto& one) { return !one.finite; });
    };
    EXPECT_EQ(skipped(found), 2);
    EXPECT_EQ(skipped(expected), 2);
    EXPECT_LE(Distance(found.parameters, expected.parameters), kSame);
  }
}

TEST_F(CudaEngineTest, RunsKernelByKernelWithoutMemoryForGraphs) {
  const EngineCase test{
      .micro = 5, .target = 13, .updates = 3, .stats = BatchStatistics::kWindow, .evaluate = false};
  const auto launches_of = [&](int failing, std::vector<float>* parameters) {
    standin::Counters before;
    const auto run = ValueOrThrow(RunOn(Cuda(), test, {.before_updates = [&] {
                                          before = standin::Count();
                                          if (failing > 0) {
                                            standin::FailCall("cudaGraphInstantiate", failing,
                                                              cudaErrorMemoryAllocation);
                                          }
                                        }}));
    *parameters = run.parameters;
    return standin::Count().graph_launches - before.graph_launches;
  };
  std::vector<float> plain;
  const std::int64_t launches = launches_of(0, &plain);
  EXPECT_GT(launches, 9) << "three segments of each micro-batch";
  for (const int failing : {1, 4}) {
    std::vector<float> found;
    EXPECT_EQ(launches_of(failing, &found), failing - 1);
    EXPECT_EQ(found, plain);
  }
}

TEST_F(CudaEngineTest, HostDoesNotWaitInsideUpdate) {
  standin::Counters before;
  standin::Counters after;
  const EngineCase test{.micro = 5, .target = 23, .updates = 30};
  ASSERT_OK(RunOn(Cuda(), test,
                  {.before_updates = [&] { before = standin::Count(); },
                   .after_updates = [&] { after = standin::Count(); }}));
  EXPECT_EQ(after.host_waits, before.host_waits);
  EXPECT_EQ(after.mallocs, before.mallocs);
  // A micro-step is one launch of a graph; in addition two copies, and none of its kernels. An
  // update copies its settings, its control words and its result.
  EXPECT_EQ(after.graph_launches - before.graph_launches, 30 * 5);
  const std::int64_t updates = 30;
  EXPECT_LE(after.copies - before.copies, updates * (5 * 2 + 3));
  EXPECT_LE(after.kernels - before.kernels, updates * 6);
}

// The check above can fail: a wait is counted.
TEST_F(CudaEngineTest, CountsHostWaits) {
  const standin::Counters before = standin::Count();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_GT(standin::Count().host_waits, before.host_waits);
}

TEST_F(CudaEngineTest, RefusesGpuNumericsOnCpu) {
  EXPECT_THAT(RunOn({}, {.micro = 8, .target = 8, .updates = 1, .numerics = {.tf32 = true}}),
              IsError(ErrorKind::kConfig, "CPU"));
}

TEST_F(CudaEngineTest, DoesNotShardOneRank) {
  EngineCase test{
      .micro = 5, .target = 13, .updates = 3, .optimizer = {.lr = 0.01, .kind = AdamWSpec{}}};
  const EngineRun expected = ValueOrThrow(RunOn(Cuda(), test));
  for (const Sharding mode : {Sharding::kOptimizer, Sharding::kNode, Sharding::kNodeOptimizer}) {
    test.shard = mode;
    const EngineRun found = ValueOrThrow(RunOn(Cuda(), test));
    EXPECT_EQ(found.parameters, expected.parameters);
    EXPECT_EQ(found.state, expected.state);
  }
}

TEST_F(CudaEngineTest, PollsForResult) {
  const EngineCase test{.micro = 8, .target = 8, .updates = 9};
  for (const EngineChoice& choice : {EngineChoice{}, Cuda()}) {
    int updates = 0;
    const auto begin = [&](Engine& engine, Prefetcher& batches, const Plan& plan,
                           const UpdateSettings& settings) -> Status {
      for (int i = 0; i < 5; ++i) {
        GACCD_RETURN_IF_ERROR(
            RunUpdate(engine, batches, PlainAccumulation(plan), settings,
                      {.on_progress = {}, .should_stop = {}, .before_reduce = [&] { ++updates; }}));
      }
      return Status::Ok();
    };
    EXPECT_THAT(RunOn(choice, test, {.update = begin}), IsError(ErrorKind::kInternal, "results"));
    EXPECT_EQ(updates, choice.device == Device::kCpu ? 1 : 2);
  }
}

// More parameters than are copied to the host at once.
TEST_F(CudaEngineTest, DigestCoversAllParameters) {
  const EngineCase test{
      .micro = 1, .target = 1, .updates = 1, .widths = {1100, 1000}, .evaluate = false};
  bool seen = false;
  const auto look = [&](Engine& engine, Prefetcher&, const Plan&, const UpdateSettings&) -> Status {
    std::vector<float> parameters(static_cast<std::size_t>(MakeCaseModel(test).layout().size()));
    GACCD_RETURN_IF_ERROR(engine.GetParameters(parameters));
    GACCD_ASSIGN_OR_RETURN(const std::uint64_t digest, engine.Digest());
    EXPECT_EQ(digest, ComputeDigest(parameters));
    seen = true;
    return {ErrorKind::kInterrupted, "the test is over"};
  };
  EXPECT_THAT(RunOn(Cuda(), test, {.update = look}), HasKind(ErrorKind::kInterrupted));
  EXPECT_TRUE(seen);
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

TEST_P(CudaFailures, ReturnStatusAndReleaseEverything) {
  const EngineCase test{.micro = 5, .target = 13, .updates = 4, .tail = 4};
  int failures = 0;
  const int step = kSanitized ? 9 : 3;
  for (int nth = 1; nth < 2000; nth = nth < 40 ? nth + step : nth + nth / 3) {
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

// The code of a kernel needs memory at its first start: with that kind the micro-step is divided.
TEST_F(CudaEngineTest, OwnKernelWithoutMemoryIsAShortage) {
  int own = 0;
  for (int nth = 1; nth < 100; nth += kSanitized ? 9 : 3) {
    standin::Reset();
    standin::FailCall("kernel", nth, cudaErrorMemoryAllocation);
    const auto run = RunOn(Cuda(), {.micro = 5, .target = 13, .updates = 1});
    if (run.ok() || run.status().message().find("cuBLASLt") != std::string::npos) continue;
    ++own;
    EXPECT_THAT(run, HasKind(ErrorKind::kOs));
  }
  EXPECT_GT(own, 0);
}

// A kernel that goes wrong takes the GPU with it.
TEST_F(CudaEngineTest, FailingKernelEndsRun) {
  const EngineCase test{.micro = 5, .target = 13, .updates = 4};
  for (const int nth : {1, 10, 100, 200}) {
    standin::Reset();
    standin::FailKernel(nth, cudaErrorIllegalAddress);
    EXPECT_THAT(RunOn(Cuda(), test), IsError(ErrorKind::kUnavailable, "cudaErrorIllegalAddress"));
  }
  standin::Reset();
}

}  // namespace
}  // namespace gaccd::tests
