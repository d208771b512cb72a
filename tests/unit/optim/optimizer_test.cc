#include "daemon/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "tests/support/own_state.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/optim/every_optimizer.h"

namespace gaccd {
namespace {

using tests::kEveryOptimizer;
using tests::MakeOptimizer;

constexpr double kDoubleNan = std::numeric_limits<double>::quiet_NaN();

std::vector<float> Random(std::size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(engine);
  return values;
}

const OptimizerSpec kSgd{0.1, SgdSpec{}};
const OptimizerSpec kAdamW{0.1, AdamWSpec{}};

TEST(OptimizerTest, StateSizeIsKnownBefore) {
  EXPECT_EQ(StateElements(kSgd, 1000), 0);
  EXPECT_EQ(StateElements({0.1, SgdSpec{.momentum = 0.9}}, 1000), 1000);
  EXPECT_EQ(StateElements(kAdamW, 1000), 2000);
  EXPECT_EQ(StateElements({.lr = 0.1, .kind = SgdSpec{}, .ema = EmaSpec{0.5}}, 1000), 1000);
  for (const auto& [name, spec] : kEveryOptimizer) {
    auto optimizer = ValueOrThrow(MakeOptimizer(spec, OptimizerRanges::One(37)));
    EXPECT_EQ(std::ssize(optimizer->state()), StateElements(spec, 37));
    for (const float value : optimizer->state()) EXPECT_EQ(value, 0);
  }
}

TEST(OptimizerTest, GradientScaleEqualsScaledGradient) {
  for (const auto& [name, spec] : kEveryOptimizer) {
    auto scaled = MakeOptimizer(spec, OptimizerRanges::One(100));
    auto plain = MakeOptimizer(spec, OptimizerRanges::One(100));
    ASSERT_TRUE(scaled.ok() && plain.ok());
    std::vector<float> a = Random(100, 1);
    std::vector<float> b = a;
    for (unsigned u = 0; u < 5; ++u) {
      const std::vector<float> gradient = Random(100, 10 + u);
      std::vector<float> quarter = gradient;
      for (float& value : quarter) value *= 0.25F;
      (*scaled)->Step(a, gradient, 0.1, 0.25F);
      (*plain)->Step(b, quarter, 0.1, 1);
    }
    EXPECT_EQ(a, b) << name;
  }
}

// Every place is computed alike, wherever it is in a vector register or in the tail.
TEST(OptimizerTest, ResultDoesNotDependOnPosition) {
  for (const auto& [name, spec] : kEveryOptimizer) {
    constexpr std::size_t kCount = 67;
    auto whole = ValueOrThrow(MakeOptimizer(spec, OptimizerRanges::One(kCount)));
    std::vector<float> params = Random(kCount, 1);
    const std::vector<float> start = params;
    std::vector<std::vector<float>> gradients;
    for (unsigned u = 0; u < 3; ++u) gradients.push_back(Random(kCount, 10 + u));
    for (const auto& gradient : gradients) whole->Step(params, gradient, 0.05, 1);
    for (std::size_t i = 0; i < kCount; ++i) {
      auto one = ValueOrThrow(MakeOptimizer(spec, OptimizerRanges::One(1)));
      float param = start[i];
      for (const auto& gradient : gradients) {
        one->Step(std::span(&param, 1), std::span(&gradient[i], 1), 0.05, 1);
      }
      ASSERT_EQ(param, params[i]) << name << " place " << i;
    }
  }
}

// A long range is done in pieces, each with its own part of the state.
TEST(OptimizerTest, ReportsUpdatedParametersIncrementally) {
  constexpr std::int64_t kRest = 77;
  constexpr std::int64_t kAll = Optimizer::kPiece + kRest;
  for (const auto& [name, spec] : kEveryOptimizer) {
    auto whole = *MakeOptimizer(spec, OptimizerRanges::One(kAll));
    auto piece = *MakeOptimizer(spec, OptimizerRanges::One(Optimizer::kPiece));
    auto rest = *MakeOptimizer(spec, OptimizerRanges::One(kRest));
    std::vector<float> found = Random(kAll, 1);
    std::vector<float> expected = found;
    for (unsigned u = 0; u < 3; ++u) {
      const std::vector<float> before = found;
      const std::vector<float> gradient = Random(kAll, 10 + u);
      piece->Step(std::span(expected).first(Optimizer::kPiece),
                  std::span(gradient).first(Optimizer::kPiece), 0.1, 1);
      rest->Step(std::span(expected).last(kRest), std::span(gradient).last(kRest), 0.1, 1);
      std::vector<std::int64_t> reported;
      whole->Step(found, gradient, 0.1, 1, [&](std::int64_t end) {
        reported.push_back(end);
        EXPECT_TRUE(std::equal(found.begin(), found.begin() + end, expected.begin()));
        EXPECT_TRUE(std::equal(found.begin() + end, found.end(), before.begin() + end));
      });
      EXPECT_EQ(reported, (std::vector{Optimizer::kPiece, kAll})) << name;
    }
    EXPECT_EQ(found, expected) << name;
  }
}

TEST(OptimizerTest, PaddingStaysZero) {
  for (const auto& [name, spec] : kEveryOptimizer) {
    auto optimizer = ValueOrThrow(MakeOptimizer(spec, OptimizerRanges::One(40)));
    std::vector<float> params(40, 0);
    const std::vector<float> gradient(40, 0);
    for (int u = 0; u < 3; ++u) optimizer->Step(params, gradient, 0.1, 1);
    EXPECT_EQ(params, std::vector<float>(40, 0));
  }
}

// A restart: state and update count carried over continue with the same bits.
TEST(OptimizerTest, ContinuesFromStateAndCount) {
  for (const auto& [name, spec] : kEveryOptimizer) {
    auto straight = MakeOptimizer(spec, OptimizerRanges::One(50));
    auto first = MakeOptimizer(spec, OptimizerRanges::One(50));
    ASSERT_TRUE(straight.ok() && first.ok());
    std::vector<float> a = Random(50, 1);
    std::vector<float> b = a;
    for (unsigned u = 0; u < 6; ++u) (*straight)->Step(a, Random(50, 20 + u), 0.1, 1);
    for (unsigned u = 0; u < 3; ++u) (*first)->Step(b, Random(50, 20 + u), 0.1, 1);
    std::vector<float> state((*first)->state().begin(), (*first)->state().end());
    auto second = ValueOrThrow(MakeOptimizer(spec, OptimizerRanges::One(50), state));
    second->set_updates((*first)->updates());
    for (unsigned u = 3; u < 6; ++u) second->Step(b, Random(50, 20 + u), 0.1, 1);
    EXPECT_EQ(a, b) << name;
    EXPECT_EQ(second->updates(), 6);
  }
}

// Two neighbours of one group, a frozen parameter, one without decay, one with a rate of its own.
FlatLayout Grouped() {
  FlatLayout layout;
  EXPECT_TRUE(layout.Add("a.weight", {20}).ok());
  EXPECT_TRUE(layout.Add("a2.weight", {3}).ok());
  EXPECT_TRUE(layout.Add("b.weight", {33}, {}, /*frozen=*/true).ok());
  EXPECT_TRUE(layout.Add("b.bias", {5}, kNoDecay).ok());
  EXPECT_TRUE(layout.Add("c.weight", {50}, {.weight_decay = 0.3, .lr_factor = 0.5}).ok());
  return layout;
}

TEST(OptimizerRangesTest, MergesNeighboursOfOneGroupAndSkipsFrozen) {
  const OptimizerRanges ranges = OptimizerRanges::Make(Grouped());
  ASSERT_EQ(ranges.all().size(), 3u);
  const std::int64_t expected[3][3] = {{0, 48, 0}, {96, 16, 48}, {112, 64, 64}};
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(ranges.all()[r].first, expected[r][0]);
    EXPECT_EQ(ranges.all()[r].elements, expected[r][1]);
    EXPECT_EQ(ranges.all()[r].state_first, expected[r][2]);
  }
  EXPECT_EQ(ranges.elements(), 128);
  EXPECT_EQ(Grouped().trainable_size(), 128);
}

// The group before a frozen parameter is the one after it.
TEST(OptimizerRangesTest, DoesNotMergeOverFrozenParameter) {
  FlatLayout layout;
  for (const char* name : {"first", "frozen", "last"}) {
    ASSERT_TRUE(layout.Add(name, {16}, {}, name == std::string_view("frozen")).ok());
  }
  const OptimizerRanges ranges = OptimizerRanges::Make(layout);
  ASSERT_EQ(ranges.all().size(), 2U);
  EXPECT_EQ(ranges.all()[0].elements, 16);
  EXPECT_EQ(ranges.all()[1].first, layout.entries()[2].offset);
  EXPECT_EQ(ranges.all()[1].elements, 16);
  EXPECT_EQ(ranges.all()[1].state_first, 16);
}

// Each parameter by itself, by an optimiser with the settings of its group.
TEST(OptimizerTest, GroupsAreBitIdenticalToSeparateOptimizers) {
  const FlatLayout layout = Grouped();
  const auto n = static_cast<std::size_t>(layout.size());
  for (const auto& [name, spec] : kEveryOptimizer) {
    auto all = *MakeOptimizer(spec, OptimizerRanges::Make(layout));
    EXPECT_EQ(std::ssize(all->state()), StateElements(spec, layout.trainable_size()));
    std::vector<float> found = Random(n, 1);
    std::vector<float> expected = found;
    std::vector<tests::OwnState> single;
    for (const FlatEntry& entry : layout.entries()) {
      OptimizerSpec own = spec;
      std::visit(
          [&](auto& kind) {
            kind.weight_decay = entry.group.weight_decay.value_or(kind.weight_decay);
          },
          own.kind);
      single.push_back(*MakeOptimizer(own, OptimizerRanges::One(entry.padded_elements())));
    }
    for (unsigned u = 0; u < 4; ++u) {
      std::vector<float> gradient = Random(n, 10 + u);
      gradient[50] = static_cast<float>(kDoubleNan);  // of the frozen one
      all->Step(found, gradient, 0.1, 0.5F);
      for (std::size_t i = 0; i < single.size(); ++i) {
        const FlatEntry& entry = layout.entries()[i];
        if (entry.frozen) continue;
        const auto first = static_cast<std::size_t>(entry.offset);
        const auto count = static_cast<std::size_t>(entry.padded_elements());
        single[i]->Step(std::span(expected).subspan(first, count),
                        std::span(gradient).subspan(first, count), 0.1 * entry.group.lr_factor,
                        0.5F);
      }
    }
    EXPECT_EQ(found, expected) << name;
  }
}

// The averages follow the state of the rule, without the frozen parameter.
TEST(OptimizerTest, AveragesAreOverEveryUpdate) {
  constexpr double kDecay = 0.75;
  const FlatLayout layout = Grouped();
  const OptimizerRanges ranges = OptimizerRanges::Make(layout);
  auto optimizer =
      *MakeOptimizer({.lr = 0.1, .kind = SgdSpec{.momentum = 0.9}, .ema = EmaSpec{kDecay}}, ranges);
  std::vector<float> params = Random(static_cast<std::size_t>(layout.size()), 1);
  std::vector<double> expected(params.size());
  EXPECT_FALSE(optimizer->ExchangeAverages(params)) << "there are none yet";
  for (unsigned u = 0; u < 5; ++u) {
    optimizer->Step(params, Random(params.size(), 10 + u), 0.1, 1);
    params[3] = 7;  // changes of the parameters after a step belong to the update, too
    optimizer->Average(params);
    for (std::size_t i = 0; i < params.size(); ++i) {
      expected[i] = u == 0 ? params[i] : kDecay * expected[i] + (1 - kDecay) * params[i];
    }
  }
  const std::vector<float> last = params;
  const auto size = static_cast<std::size_t>(ranges.elements());
  const std::vector<float> momentum(optimizer->state().begin(), optimizer->state().end() - size);
  EXPECT_TRUE(optimizer->ExchangeAverages(params));
  for (std::size_t i = 0; i < params.size(); ++i) {
    const bool frozen = i >= 48 && i < 96;
    EXPECT_NEAR(params[i], frozen ? last[i] : expected[i], 1e-6) << i;
  }
  EXPECT_TRUE(optimizer->ExchangeAverages(params));
  EXPECT_EQ(params, last) << "and back";
  EXPECT_TRUE(std::ranges::equal(momentum, optimizer->state().first(size)));
}

TEST(OptimizerTest, AcceptsNoParameters) {
  auto optimizer = ValueOrThrow(MakeOptimizer(kAdamW, OptimizerRanges::One(0)));
  optimizer->Step({}, {}, 0.1, 1);
  EXPECT_EQ(optimizer->updates(), 1);
}

void ExpectRefused(const OptimizerSpec& spec, const char* text) {
  EXPECT_THAT(MakeOptimizer(spec, OptimizerRanges::One(4)), IsError(ErrorKind::kConfig, text))
      << text;
}

TEST(OptimizerTest, RefusesNegativeWeightDecay) {
  for (const auto& [name, spec] : kEveryOptimizer) {
    OptimizerSpec wrong = spec;
    std::visit([](auto& kind) { kind.weight_decay = -1; }, wrong.kind);
    ExpectRefused(wrong, "weight_decay must be >= 0 and finite, found -1");
  }
}

TEST(OptimizerTest, RefusesBadValuesByName) {
  ExpectRefused({-0.1, SgdSpec{}}, "lr must be >= 0 and finite, found -0.1");
  ExpectRefused({kDoubleNan, SgdSpec{}}, "found nan");
  ExpectRefused({0.1, SgdSpec{-0.5, 0, false}}, "momentum must be >= 0 and finite, found -0.5");
  ExpectRefused({0.1, SgdSpec{0.5, kDoubleNan, false}}, "weight_decay must be");
  ExpectRefused({0.1, SgdSpec{0, 0, true}}, "nesterov needs a momentum > 0");
  ExpectRefused({0.1, AdamWSpec{1, 0.9, 1e-8, 0}}, "beta1 must be >= 0 and < 1, found 1");
  ExpectRefused({0.1, AdamWSpec{0.9, -0.1, 1e-8, 0}}, "beta2 must be >= 0 and < 1, found -0.1");
  ExpectRefused({0.1, AdamWSpec{0.9, 0.9, 0, 0}}, "epsilon must be > 0 and finite, found 0");
  ExpectRefused({0.1, AdamWSpec{0.9, 0.9, 1e-60, 0}}, "epsilon must be > 0");
  ExpectRefused({0.1, AdamWSpec{0.9, 0.9, 1e-8, -1}}, "weight_decay must be");
  ExpectRefused({.lr = 0.1, .kind = SgdSpec{}, .ema = EmaSpec{1}},
                "ema decay must be >= 0 and < 1, found 1");
}

TEST(OptimizerTest, RefusesAStateOfTheWrongSize) {
  std::vector<float> state(7);
  EXPECT_THAT(MakeOptimizer(kAdamW, OptimizerRanges::One(4), state),
              IsError(ErrorKind::kInternal, "expected 8 values of state, found 7"));
  EXPECT_FALSE(MakeOptimizer(kAdamW, OptimizerRanges::One(-1)).ok());
}

}  // namespace
}  // namespace gaccd
