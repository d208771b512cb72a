// What an update is, whatever the device: the order of its phases, its decision and its results,
// over a backend that computes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/unit/train/fake_engine.h"

namespace gaccd::tests {
namespace {

using Call = std::function<Status(Engine&)>;

struct NamedCall {
  std::string name;
  Call call;
};

// Of an update of 20 samples, in order; the second micro-step may be left out, the others not.
std::vector<NamedCall> Phases() {
  return {{"Begin", [](Engine& e) { return e.Begin({.samples = 20, .lr = 1}); }},
          {"MicroStep", [](Engine& e) { return e.MicroStep({.samples = 12}, {.first = true}); }},
          {"MicroStep", [](Engine& e) { return e.MicroStep({.samples = 8}, {.last = true}); }},
          {"Reduce", [](Engine& e) { return e.Reduce(); }},
          {"MeasureGradient", [](Engine& e) { return e.MeasureGradient(); }},
          {"Audit", [](Engine& e) { return e.Audit(); }},
          {"Optimize", [](Engine& e) { return e.Optimize(); }},
          {"End", [](Engine& e) { return e.End(); }}};
}

Status RunCalls(Engine& engine, const std::vector<NamedCall>& calls) {
  for (const auto& [name, call] : calls) GACCD_RETURN_IF_ERROR(call(engine));
  return Status::Ok();
}

Result<std::optional<UpdateResult>> RunAndTake(Engine& engine) {
  GACCD_RETURN_IF_ERROR(RunCalls(engine, Phases()));
  return engine.PopResult(/*wait=*/true);
}

TEST(EnginePhasesTest, RunsEveryPhaseOnceInOrder) {
  const std::vector<NamedCall> phases = Phases();
  for (std::size_t last = 0; last < phases.size(); ++last) {
    for (const NamedCall& next : phases) {
      FakeEngine<> engine;
      ASSERT_TRUE(
          RunCalls(engine, {phases.begin(), phases.begin() + static_cast<long>(last) + 1}).ok());
      const bool again = last + 1 == phases.size() && next.name == "Begin";
      if (again) {
        ASSERT_TRUE((*engine).PopResult(true).ok());
      }
      const bool micro_step = next.name == "MicroStep" && last < 3;
      const bool follows = last + 1 < phases.size() && next.name == phases[last + 1].name;
      const bool reduces = next.name == "Reduce" && phases[last].name == "MicroStep";
      const Status status = next.call(engine);
      EXPECT_EQ(status.ok(), again || micro_step || follows || reduces)
          << next.name << " after " << phases[last].name;
      if (status.ok()) continue;
      EXPECT_THAT(status, IsError(ErrorKind::kInternal, next.name + "(): expected after ",
                                  "found after " + phases[last].name));
    }
  }
}

TEST(EnginePhasesTest, WindowIsAccessibleOnlyInsideUpdate) {
  FakeEngine<> engine;
  EXPECT_THAT((*engine).GetPartialUpdate(), HasKind(ErrorKind::kInternal));
  std::vector<float> gradients(static_cast<std::size_t>(ModelOfFakes().layout().size()));
  EXPECT_THAT((*engine).SetPartialUpdate(gradients, {}), HasKind(ErrorKind::kInternal));
  ASSERT_TRUE((*engine).Begin({.samples = 20}).ok());
  ASSERT_TRUE(
      (*engine).SetPartialUpdate(gradients, {.samples = 8, .loss_sum = 3, .divisor = 7}).ok());
  EXPECT_EQ((*engine).GetPartialUpdate().value(),
            (PartialUpdate{.samples = 8, .loss_sum = 3, .divisor = 7}));
  gradients.pop_back();
  EXPECT_THAT((*engine).SetPartialUpdate(gradients, {}), HasKind(ErrorKind::kInternal));
  EXPECT_FALSE((*engine).PopResult(true).value().has_value()) << "it has not ended";
}

TEST(EnginePhasesTest, UpdateHasSamples) {
  FakeEngine<> engine;
  for (const std::int64_t samples : {0, -1}) {
    EXPECT_THAT((*engine).Begin({.samples = samples}),
                IsError(ErrorKind::kInternal, "at least 1 sample, found"));
  }
}

TEST(EnginePhasesTest, BuffersHaveTheirSize) {
  FakeEngine<> engine({.lr = 1, .kind = SgdSpec{.momentum = 0.9}});
  const auto size = ModelOfFakes().layout().size();
  std::vector<float> values(static_cast<std::size_t>(size));
  EXPECT_TRUE((*engine).Read(EngineBuffer::kOptimizer, 0, values).ok());
  EXPECT_TRUE((*engine).Read(EngineBuffer::kParameters, size, {}).ok());
  for (const std::int64_t first : {std::int64_t{-1}, std::int64_t{1}, size + 1}) {
    EXPECT_THAT((*engine).Read(EngineBuffer::kGradients, first, values),
                HasKind(ErrorKind::kInternal))
        << first;
  }
  values.pop_back();
  for (const Status& status : {(*engine).SetParameters(values), (*engine).GetParameters(values),
                               (*engine).GetGradients(values), (*engine).SetOptimizer(values, 1)}) {
    EXPECT_THAT(status, IsError(ErrorKind::kInternal, "elements, found"));
  }
}

// Half of the samples count: the gradient is twice what the accumulators have, and so is the norm
// that is clipped.
class HalfCounts final : public FakeBackend {
 public:
  Status Measure() override {
    page.sums.divisor /= 2;
    return FakeBackend::Measure();
  }
};

TEST(EnginePhasesTest, AppliesDivisorToNormClipAndGradients) {
  FakeEngine<HalfCounts> engine;
  engine->squares = 9;
  std::vector<NamedCall> calls = Phases();
  calls[0].call = [](Engine& e) {
    return e.Begin({.samples = 20, .clip_norm = 1.5, .loss_scale = 4});
  };
  ASSERT_TRUE(RunCalls(engine, calls).ok());
  EXPECT_EQ(engine->page.inputs.prediction_weight, 4.0F / 20);
  const auto result = (*engine).PopResult(true).value();
  EXPECT_EQ(result->divisor, 10);
  EXPECT_EQ(result->grad_norm, 3 * 2.0 / 4);
  EXPECT_EQ(engine->page.decision.gradient_scale, 0.5F) << "not longer than clip_norm";
  calls[0].call = [](Engine& e) { return e.Begin({.samples = 20, .clip_norm = 0.75}); };
  ASSERT_TRUE(RunCalls(engine, calls).ok());
  EXPECT_EQ((*engine).PopResult(true).value()->grad_norm, 6);
  EXPECT_EQ(engine->page.decision.gradient_scale, 2.0F * 0.75F / 6);
  std::vector<float> gradients(static_cast<std::size_t>(ModelOfFakes().layout().size()));
  ASSERT_TRUE((*engine).GetGradients(gradients).ok());
  EXPECT_EQ(gradients[3], 2 * FakeBackend::ElementValue(EngineBuffer::kGradients, 3));
}

TEST(EnginePhasesTest, NonFiniteUpdateChangesNothing) {
  for (const double squares : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    FakeEngine<> engine;
    engine->squares = squares;
    const auto result = ValueOrThrow(RunAndTake(engine));
    EXPECT_FALSE(result->finite);
    EXPECT_EQ(engine->page.decision.idle, 1);
    engine->squares = 1;  // outlived
    EXPECT_TRUE(RunAndTake(engine).value()->finite);
    EXPECT_EQ(engine->page.decision.idle, 0);
  }
}

TEST(EnginePhasesTest, DetectsLostMicroBatch) {
  FakeEngine<> engine;
  std::vector<NamedCall> calls = Phases();
  calls.erase(calls.begin() + 2);
  ASSERT_TRUE(RunCalls(engine, calls).ok());
  EXPECT_EQ(engine->page.decision.idle, 1);
  EXPECT_THAT((*engine).PopResult(true),
              IsError(ErrorKind::kInternal, "the plan has 20 samples", "rank 0: 12"));
}

// The clock of a device, which is not that of the host.
class TimedBackend final : public FakeBackend {
 public:
  Result<bool> Idle(const UpdateSlot&) override { return idle; }
  Result<double> Seconds(const UpdateSlot&, UpdateMark from, UpdateMark) override {
    return from == UpdateMark::kBegin ? steps_s : 1.0;
  }
  bool idle = true;
  double steps_s = 0;
};

TEST(EnginePhasesTest, WaitsForDataAreOfOneUpdateAndPartOfItsSteps) {
  FakeEngine<TimedBackend> engine;
  const UpdateResult waited = ValueOrThrow(RunAndTake(engine)).value();
  EXPECT_EQ(waited.data_s, 0) << "the micro-steps took no time";
  EXPECT_EQ(waited.fwd_bwd_s, 0);
  engine->idle = false;
  engine->steps_s = 1000;
  for (std::size_t i = 0; i < Backend::kSlots; ++i) {
    const UpdateResult busy = ValueOrThrow(RunAndTake(engine)).value();
    EXPECT_EQ(busy.data_s, 0) << "the host waited in an earlier update";
    EXPECT_EQ(busy.fwd_bwd_s, 1000);
  }
}

// Counts a step when it is enqueued, as a GPU does.
class CountingBackend final : public FakeBackend {
 public:
  Status Begin(const UpdateSlot& slot, double lr) override {
    ++steps;
    return FakeBackend::Begin(slot, lr);
  }
  Status SetInputs(const UpdateSlot&) override {
    ++inputs_sent;
    return {};
  }
  [[nodiscard]] std::int64_t updates() const override { return steps; }
  void set_updates(std::int64_t updates) override { steps = updates; }
  std::int64_t steps = 0;
  int inputs_sent = 0;
};

TEST(EnginePhasesTest, OptimizerUpdatesExcludeSkipped) {
  FakeEngine<CountingBackend> engine;
  ASSERT_TRUE((*engine).Begin({.samples = 20}).ok());
  EXPECT_EQ((*engine).optimizer_updates(), 0) << "it has not ended";
  std::vector<NamedCall> rest = Phases();
  rest.erase(rest.begin());
  ASSERT_TRUE(RunCalls(engine, rest).ok());
  ASSERT_TRUE((*engine).PopResult(true).ok());
  EXPECT_EQ((*engine).optimizer_updates(), 1);
  engine->squares = std::nan("");
  ASSERT_TRUE(RunAndTake(engine).ok());
  EXPECT_EQ((*engine).optimizer_updates(), 1) << "not finite";
  EXPECT_EQ(engine->inputs_sent, 0);
  engine->squares = 1;
  std::vector<NamedCall> restored = Phases();  // a window of 3 samples in place of the first 12
  restored[1].call = [](Engine& e) {
    const auto size = static_cast<std::size_t>(ModelOfFakes().layout().size());
    return e.SetPartialUpdate(std::vector<float>(size), {.samples = 3, .divisor = 3});
  };
  ASSERT_TRUE(RunCalls(engine, restored).ok());
  EXPECT_THAT((*engine).PopResult(true),
              HasMessage(HasSubstr("the ranks counted 11 (rank 0: 11)")));
  EXPECT_EQ((*engine).optimizer_updates(), 1) << "a wrong count";
  EXPECT_EQ(engine->inputs_sent, 1) << "a probe has the inputs of the update that failed";
}

TEST(EnginePhasesTest, RequiresResultBeforeNextUpdate) {
  FakeEngine<> engine;
  ASSERT_TRUE(RunCalls(engine, Phases()).ok());
  EXPECT_THAT((*engine).Begin({.samples = 20}), IsError(ErrorKind::kInternal, "results"));
}

}  // namespace
}  // namespace gaccd::tests
