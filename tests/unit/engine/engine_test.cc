// The engine on a CPU, several ranks as threads: what travels with an update in addition to the
// gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/train/update.h"
#include "tests/support/engine_runs.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

// The run of every rank.
std::vector<Result<EngineRun>> RunRanks(const EngineCase& test,
                                        const EngineRunOptions& options = {}) {
  std::vector<Result<EngineRun>> runs(static_cast<std::size_t>(test.ranks),
                                      Status(ErrorKind::kInternal, "did not run"));
  (void)RunThreadRanks(test.ranks, {}, [&](Communicator& comm) {
    auto& run = runs[static_cast<std::size_t>(comm.rank())];
    run = RunEngine(comm, test, {}, options);
    return run.status();
  });
  return runs;
}

TEST(EngineTest, ControlWordsAreSummedOverTheRanks) {
  for (const int ranks : {1, 3}) {
    for (const std::size_t elements : {0U, 1U, 40U}) {
      SCOPED_TRACE(StrCat(ranks, " ranks, ", elements, " elements"));
      const EngineCase test{
          .ranks = ranks, .micro = 5, .target = 33, .updates = 4, .control_words = elements};
      for (const auto& run : RunRanks(test)) {
        ASSERT_TRUE(run.ok()) << run.status().message();
        ASSERT_EQ(run->control_words.size(), 4U);
        for (std::size_t u = 0; u < run->control_words.size(); ++u) {
          ASSERT_EQ(run->control_words[u].size(), elements);
          for (std::size_t i = 0; i < elements; ++i) {
            double expected = 0;
            for (int rank = 0; rank < ranks; ++rank) {
              expected += ControlWord(rank, static_cast<std::int64_t>(u), i);
            }
            EXPECT_EQ(run->control_words[u][i], expected) << "update " << u + 1;
          }
        }
      }
    }
  }
}

// The noise of an update follows from the accumulated gradients of the ranks before the reduction;
// `update` is RunUpdate() that takes them down.
struct RankShare {
  std::vector<float> gradient;
  double samples = 0;
};

GradientNoise ComputeNoise(const std::vector<RankShare>& shares, double norm) {
  std::vector<double> sum(shares[0].gradient.size());
  double batch = 0;
  for (const RankShare& share : shares) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += share.gradient[i];
    batch += share.samples;
  }
  // Of a sample: what the optimiser sees of it, times the number of samples.
  const double unit =
      batch * norm / std::sqrt(std::inner_product(sum.begin(), sum.end(), sum.begin(), 0.0));
  double of_ranks = 0;
  double ranks = 0;
  for (const RankShare& share : shares) {
    if (share.samples == 0) continue;
    double square = 0;
    for (const float g : share.gradient) square += unit * g * unit * g;
    of_ranks += square / share.samples / batch;
    ranks += 1;
  }
  return {.variance = (of_ranks - norm * norm) * batch / (ranks - 1),
          .square = (ranks * norm * norm - of_ranks) / (ranks - 1)};
}

TEST(EngineTest, GradientNoiseOfRaggedRanks) {
  // 3 ranks with 13, 12 and 12 samples; 5 with 1, 1, 1, 0 and 0.
  for (EngineCase test :
       {EngineCase{.ranks = 3, .micro = 5, .target = 37, .updates = 3},
        EngineCase{.ranks = 5, .micro = 5, .target = 3, .updates = 2},
        EngineCase{
            .ranks = 3, .micro = 5, .target = 37, .updates = 2, .shard = Sharding::kOptimizer},
        EngineCase{
            .ranks = 3, .micro = 5, .target = 37, .updates = 2, .tokens = 6, .token_weights = true},
        EngineCase{.ranks = 1, .micro = 5, .target = 37, .updates = 2}}) {
    SCOPED_TRACE(StrCat(test.ranks, " ranks, ", test.target, " samples"));
    std::mutex mutex;
    std::map<std::int64_t, std::vector<RankShare>> shares;  // by update
    EngineRunOptions options;
    options.update = [&](Engine& engine, Prefetcher& batches, const Plan& plan,
                         UpdateSettings settings) {
      settings.measure_noise = settings.update > 0;
      return UpdateByHand(engine, plan, settings, [&](std::int64_t step) -> Status {
        const bool last = step + 1 == plan.accum_steps();
        GACCD_RETURN_IF_ERROR(
            engine.MicroStep(*batches.Next(), {.first = step == 0, .last = last}));
        if (!last) return Status::Ok();
        GACCD_ASSIGN_OR_RETURN(const PartialUpdate window, engine.GetPartialUpdate());
        RankShare share{.samples = static_cast<double>(window.samples)};
        share.gradient.resize(static_cast<std::size_t>(MakeCaseModel(test).layout().size()));
        GACCD_RETURN_IF_ERROR(engine.Read(EngineBuffer::kGradients, 0, share.gradient));
        const std::scoped_lock lock(mutex);
        shares[settings.update].push_back(std::move(share));
        return Status::Ok();
      });
    };
    for (const auto& run : RunRanks(test, options)) {
      ASSERT_TRUE(run.ok()) << run.status().message();
      ASSERT_FALSE(run->results[0].noise.has_value());  // not asked for
      for (std::int64_t u = 1; u < test.updates; ++u) {
        const UpdateResult& result = run->results[static_cast<std::size_t>(u)];
        ASSERT_EQ(result.noise.has_value(), test.ranks > 1);
        if (!result.noise) continue;
        const GradientNoise expected = ComputeNoise(shares[u], result.grad_norm);
        EXPECT_NEAR(result.noise->variance / expected.variance, 1, 1e-5);
        EXPECT_NEAR(result.noise->square, expected.square,
                    1e-5 * (std::abs(expected.square) + expected.variance));
      }
    }
  }
}

// Statistics of micro-batches are summed among the gradients, and are none.
TEST(EngineTest, GradientNormExcludesMicroStatistics) {
  for (const Sharding shard : {Sharding::kNone, Sharding::kOptimizer}) {
    const EngineCase test{.ranks = 3,
                          .micro = 5,
                          .target = 37,
                          .updates = 2,
                          .stats = BatchStatistics::kMicro,
                          .shard = shard};
    const Model model = MakeCaseModel(test);
    for (const auto& run : RunRanks(test, {.gradients = true})) {
      ASSERT_TRUE(run.ok()) << run.status().message();
      for (std::size_t u = 0; u < run->results.size(); ++u) {
        double squares = 0;
        for (const FlatEntry& entry : model.layout().entries()) {
          if (entry.buffer) continue;
          const auto* const from = run->gradients[u].data() + entry.offset;
          squares = std::inner_product(from, from + entry.elements, from, squares);
        }
        EXPECT_NEAR(run->results[u].grad_norm / std::sqrt(squares), 1, 1e-5);
      }
    }
  }
}

// Tensors are found by name, whatever their order, and those that no graph asks for are left alone.
TEST(EngineTest, TensorOrderDoesNotMatter) {
  for (const LossKind loss : {LossKind::kSoftmaxCrossEntropy, LossKind::kMeanSquaredError}) {
    EngineCase test{.micro = 5, .target = 13, .updates = 3, .loss = loss};
    const auto expected = RunRanks(test);
    test.other_tensors = true;
    const auto found = RunRanks(test);
    ASSERT_TRUE(expected[0].ok() && found[0].ok()) << found[0].status().message();
    EXPECT_EQ(found[0]->parameters, expected[0]->parameters);
    EXPECT_EQ(found[0]->evaluation.loss_sum, expected[0]->evaluation.loss_sum);
  }
}

// The texts of a rank in other micro-batches, without the padding after the longest: up to the
// rounding of sums in another order, the same updates. Dropout's masks stay with their samples.
TEST(EngineTest, UpdatesAreSameIfGroupedByLength) {
  for (const int ranks : {1, 3}) {
    EngineCase test{.ranks = ranks,
                    .micro = 5,
                    .target = 17 * ranks + 1,
                    .updates = 6,
                    .tail = 2,
                    .widths = {12, 3},
                    .optimizer = {.lr = 0.01, .kind = AdamWSpec{.epsilon = 1e-3}},
                    .dropout = 0.3,
                    .texts = 24};
    const auto whole = RunRanks(test);
    test.cut = 8;
    ASSERT_EQ(MakeCaseModel(test).sample().cuts, (std::vector<std::int64_t>{8, 16}));
    const auto cut = RunRanks(test);
    for (std::size_t rank = 0; rank < cut.size(); ++rank) {
      ASSERT_TRUE(whole[rank].ok()) << whole[rank].status().message();
      ASSERT_TRUE(cut[rank].ok()) << cut[rank].status().message();
      for (std::size_t u = 0; u < 6; ++u) {
        EXPECT_NEAR(cut[rank]->results[u].loss, whole[rank]->results[u].loss, 2e-6);
        EXPECT_EQ(cut[rank]->results[u].samples, whole[rank]->results[u].samples);
      }
      EXPECT_LT(Distance(cut[rank]->parameters, whole[rank]->parameters), 2e-6);
      EXPECT_EQ(cut[rank]->parameters, cut[0]->parameters);
    }
  }
}

TEST(EngineTest, RefusesControlWordsOfAnotherSize) {
  const EngineRunOptions options{
      .update = [](Engine& engine, Prefetcher&, const Plan& plan, UpdateSettings settings) {
        settings.samples = plan.effective_batch();
        settings.control_words = settings.control_words.first(2);
        return engine.Begin(settings);
      }};
  const auto runs = RunRanks({}, options);
  EXPECT_THAT(runs[0],
              IsError(ErrorKind::kInternal, "control words: expected 3 elements, found 2"));
}

// What repeating an update without a micro-batch must not do: keep the divisor of all samples, or
// leave it out on one rank and not tell the others.
TEST(EngineTest, DetectsWrongDivisorOfDroppedMicroBatches) {
  for (const std::int64_t reported : {33, 28, 29}) {
    const EngineRunOptions options{.update = [&](Engine& engine, Prefetcher& batches,
                                                 const Plan& plan, UpdateSettings settings) {
      settings.samples = reported;
      const auto rank = static_cast<int>(settings.control_words[0] / 1000) - 1;
      return RunUpdate(
          engine, batches, PlainAccumulation(plan), settings,
          {.on_progress = {}, .should_stop = {}, .is_dropped = [rank](std::int64_t step) {
             return rank == 1 && step == 1;  // of 4 + 4 + 3
           }});
    }};
    for (const auto& run :
         RunRanks({.ranks = 3, .micro = 5, .target = 33, .updates = 1}, options)) {
      EXPECT_EQ(run.ok(), reported == 29) << reported;
      if (run.ok()) continue;
      EXPECT_THAT(run, IsError(ErrorKind::kInternal, "rank 1: "));
    }
  }
}

TEST(EngineTest, TimesOfUpdateAddUp) {
  constexpr std::chrono::milliseconds kPause{2};
  const EngineRunOptions options{.update = [&](Engine& engine, Prefetcher& batches,
                                               const Plan& plan, UpdateSettings settings) {
    return RunUpdate(engine, batches, PlainAccumulation(plan), settings,
                     {.is_dropped = [&](std::int64_t) {
                       std::this_thread::sleep_for(kPause);  // as if the data were late
                       return false;
                     }});
  }};
  const auto runs = RunRanks({.micro = 5, .target = 13, .updates = 2}, options);
  ASSERT_TRUE(runs[0].ok()) << runs[0].status().message();
  double sum_s = 0;
  for (const UpdateResult& one : runs[0]->results) {
    EXPECT_GE(one.data_s, 3 * std::chrono::duration<double>(kPause).count()) << "3 micro-steps";
    EXPECT_EQ(one.dur_s, one.data_s + one.fwd_bwd_s + one.reduce_s + one.opt_s);
    for (const double part : {one.fwd_bwd_s, one.reduce_s, one.opt_s}) EXPECT_GT(part, 0);
    sum_s += one.dur_s;
  }
  EXPECT_LE(sum_s, runs[0]->wall_s) << "no time is counted twice";
}

// Update 2 lacks a micro-batch of rank 1: parameters, optimiser state and its count stay those of
// update 1 on every rank, although the result was not asked for yet.
TEST(EngineTest, FailedAuditChangesNothing) {
  const EngineCase test{.ranks = 3,
                        .micro = 5,
                        .target = 33,
                        .updates = 3,
                        .optimizer = {.lr = 0.1, .kind = AdamWSpec{}}};
  struct State {
    std::vector<float> parameters;
    std::vector<float> optimizer;
    std::int64_t updates = 0;
    bool operator==(const State&) const = default;
  };
  const auto state_of = [&](Engine& engine) -> Result<State> {
    const std::int64_t size = MakeCaseModel(test).layout().size();
    State state{std::vector<float>(static_cast<std::size_t>(size)),
                std::vector<float>(static_cast<std::size_t>(2 * size)), engine.optimizer_updates()};
    GACCD_RETURN_IF_ERROR(engine.GetParameters(state.parameters));
    GACCD_RETURN_IF_ERROR(engine.Read(EngineBuffer::kOptimizer, 0, state.optimizer));
    return state;
  };
  (void)RunThreadRanks(test.ranks, {}, [&](Communicator& comm) {
    int updates = 0;
    const auto update = [&](Engine& engine, Prefetcher& batches, const Plan& plan,
                            UpdateSettings settings) -> Status {
      GACCD_ASSIGN_OR_RETURN(const State before, state_of(engine));
      const bool loses = ++updates == 2 && comm.rank() == 1;
      GACCD_RETURN_IF_ERROR(
          RunUpdate(engine, batches, PlainAccumulation(plan), settings,
                    {.on_progress = {}, .should_stop = {}, .is_dropped = [&](std::int64_t step) {
                       return loses && step == 1;
                     }}));
      GACCD_ASSIGN_OR_RETURN(const State after, state_of(engine));
      EXPECT_EQ(after == before, updates == 2) << "update " << updates;
      return Status::Ok();
    };
    const Status status = RunEngine(comm, test, {}, {.update = update}).status();
    EXPECT_EQ(updates, 2);
    EXPECT_THAT(status, HasMessage(AllOf(HasSubstr("the plan has 33 samples"),
                                         HasSubstr("the ranks counted 29"))));
    return Status::Ok();
  });
}

// The first update makes the bias of a hidden unit -Inf: ReLU turns its values into 0, so that no
// later loss or gradient shows it.
TEST(EngineTest, ParameterOverflowMakesNextUpdateNonFinite) {
  for (const Sharding shard : {Sharding::kNone, Sharding::kOptimizer}) {
    const EngineCase test{.ranks = 2,
                          .micro = 4,
                          .target = 16,
                          .updates = 3,
                          .optimizer = {.lr = 100, .kind = SgdSpec{}},
                          .tolerate_nonfinite = true,
                          .shard = shard};
    const auto update = [](Engine& engine, Prefetcher& batches, const Plan& plan,
                           const UpdateSettings& settings) {
      const auto overflow = [&](std::int64_t done) -> Result<bool> {
        if (settings.update != 0 || done != 1) return false;
        const FlatLayout layout = MakeCaseModel({}).layout();
        std::vector<float> gradients(static_cast<std::size_t>(layout.size()));
        gradients[static_cast<std::size_t>(layout.entries()[1].offset)] = 1e38F;
        GACCD_ASSIGN_OR_RETURN(const PartialUpdate share, engine.GetPartialUpdate());
        GACCD_RETURN_IF_ERROR(engine.SetPartialUpdate(gradients, share));
        return false;
      };
      return RunUpdate(engine, batches, PlainAccumulation(plan), settings,
                       {.on_progress = {}, .should_stop = overflow});
    };
    for (const auto& run : RunRanks(test, {.update = update})) {
      ASSERT_TRUE(run.ok()) << run.status().message();
      EXPECT_TRUE(run->results[0].finite);
      EXPECT_TRUE(std::isfinite(run->results[1].loss));
      EXPECT_FALSE(run->results[1].finite);
      EXPECT_FALSE(run->results[2].finite);
    }
  }
}

// RunEngine() compares what they give.
TEST(EngineTest, EvaluatesAverages) {
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    if (precision == Precision::kBF16 && DetectCpuBf16() == CpuBf16::kNone) {
      GTEST_SKIP() << "bf16 is left out: this CPU has " << Name(DetectCpuBf16());
    }
    EngineCase test{.ranks = 3, .micro = 5, .target = 33, .updates = 4};
    test.optimizer.ema = EmaSpec{0.9};
    test.numerics.precision = precision;
    for (const auto& run : RunRanks(test)) EXPECT_TRUE(run.ok()) << run.status().message();
  }
}

// Also what is done to the parameters after the step: the scale of a contrastive loss is limited.
TEST(EngineTest, AveragesEqualWeightsAfterFirstUpdate) {
  for (const LossKind loss : {LossKind::kSoftmaxCrossEntropy, LossKind::kContrastive}) {
    EngineCase test{
        .ranks = 3, .micro = 5, .target = 33, .updates = 1, .loss = loss, .evaluate = false};
    test.optimizer = {.lr = 1e-3, .kind = SgdSpec{}, .ema = EmaSpec{0.9}};
    for (const auto& run : RunRanks(test)) {
      ASSERT_TRUE(run.ok()) << run.status().message();
      const auto size = static_cast<std::ptrdiff_t>(run->parameters.size());
      EXPECT_EQ(std::vector<float>(run->state.end() - size, run->state.end()), run->parameters);
    }
  }
}

}  // namespace
}  // namespace gaccd::tests
