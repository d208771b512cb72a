// The optimisers on the GPU against those of the CPU, to the last bit; norm, decision and sums.
#include "daemon/optim/optimizer_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "daemon/optim/measure.h"
#include "daemon/optim/optimizer.h"
#include "tests/support/on_gpu.h"
#include "tests/support/own_state.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/optim/every_optimizer.h"

namespace gaccd {
namespace {

using tests::kEveryOptimizer;
using tests::MakeOptimizer;
using tests::NamedOptimizer;

OptimizerRanges RangesOr(const OptimizerRanges* groups, std::size_t n) {
  return groups != nullptr ? *groups : OptimizerRanges::One(static_cast<std::int64_t>(n));
}

void Measure(cudaStream_t stream, const GpuArray<float>& gradient, std::size_t size,
             UpdateControl* control, void* scratch) {
  const auto elements = static_cast<std::int64_t>(size);
  EXPECT_OK(BlockSquares(stream, gradient.data(), elements, control, SquaresIn(scratch)));
  EXPECT_OK(DecideFromSquares(stream, elements, control, scratch));
}

// Everything that an update on the GPU works on. copy_type kF32: there is no copy.
struct Bench {
  Bench(const OptimizerSpec& spec, std::size_t n, DType copy_type,
        const OptimizerRanges* groups = nullptr)
      : elements(n),
        parameters(RandomValues(1, n)),
        gradient(n),
        state(static_cast<std::size_t>(StateElements(spec, RangesOr(groups, n).elements())) + 1),
        copy(n),
        control(std::vector<UpdateControl>(1)),
        scratch(NormScratchBytes(static_cast<std::int64_t>(n))) {
    stream = ValueOrThrow(CudaStream::Create());
    optimizer = ValueOrThrow(
        CudaOptimizer::Create(spec, RangesOr(groups, n),
                              {.parameters = parameters.data(),
                               .gradient = gradient.data(),
                               .state = state.data(),
                               .copy = copy_type != DType::kF32 ? copy.data() : nullptr,
                               .copy_type = copy_type,
                               .elements = static_cast<std::int64_t>(n)}));
  }

  // One update as the engine does it; `samples` are given to the sums, 10 are planned.
  void Update(const std::vector<float>& g, double lr, double clip, double loss = 1,
              std::int64_t samples = 10, bool continue_if_nonfinite = false) {
    CopyToGpu(gradient.data(), g.data(), g.size() * sizeof(float));
    UpdateControl host = control.Value();
    host.inputs = {.clip_norm = clip,
                   .effective_batch = 10,
                   .planned_divisor = 10,
                   .continue_if_nonfinite = continue_if_nonfinite ? 1 : 0};
    optimizer->Prepare(lr, &host.inputs);
    CopyToGpu(control.data(), &host, sizeof(host));
    const GpuArray<double> loss_sum(std::vector<double>{loss});
    EXPECT_OK(AddToSums(stream.get(), control.data(), loss_sum.data(), nullptr, samples, true));
    Measure(stream.get(), gradient, elements, control.data(), scratch.data());
    EXPECT_OK(optimizer->Step(stream.get(), control.data()));
    EXPECT_OK(optimizer->Average(stream.get(), control.data()));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  std::size_t elements;
  CudaStream stream;
  GpuArray<float> parameters;
  GpuArray<float> gradient;
  GpuArray<float> state;
  GpuArray<std::uint16_t> copy;  // bits
  GpuArray<UpdateControl> control;
  GpuArray<char> scratch;
  std::unique_ptr<CudaOptimizer> optimizer;
};

class OptimizerCuda : public ::testing::TestWithParam<std::tuple<NamedOptimizer, std::size_t>> {};

TEST_P(OptimizerCuda, TenUpdatesAreBitIdenticalToCpu) {
  const auto& [named, n] = GetParam();
  Bench bench(named.spec, n, DType::kBF16);
  std::vector<float> expected = RandomValues(1, n);
  auto cpu = *MakeOptimizer(named.spec, OptimizerRanges::One(static_cast<std::int64_t>(n)));
  for (std::uint64_t update = 1; update <= 10; ++update) {
    const std::vector<float> g = RandomValues(100 + update, n, 2);
    const double lr = named.spec.lr * static_cast<double>(update);
    const double clip = update % 2 == 0 ? 0.25 * std::sqrt(static_cast<double>(n)) : 0;
    bench.Update(g, lr, clip);
    const UpdateDecision decision = bench.control.Value().decision;
    const double norm = std::sqrt(SumOfSquares(g));
    EXPECT_NEAR(decision.norm, norm, 1e-13 * norm);
    EXPECT_EQ(decision.gradient_scale, static_cast<float>(ClipFactor(decision.norm, clip)));
    EXPECT_EQ(decision.finite, 1);
    EXPECT_EQ(decision.counted, 1);
    EXPECT_EQ(decision.stopped, 0);
    cpu->Step(expected, g, lr, decision.gradient_scale);
    cpu->Average(expected);
  }
  for (const bool exchanged : {false, true, false}) {
    EXPECT_EQ(bench.parameters.Values(), expected) << exchanged;
    std::vector<float> state = bench.state.Values();
    state.pop_back();
    EXPECT_EQ(state, std::vector<float>(cpu->state().begin(), cpu->state().end())) << exchanged;
    EXPECT_EQ(cpu->ExchangeAverages(expected), named.spec.ema.has_value());
    EXPECT_OK(bench.optimizer->ExchangeAverages(bench.stream.get()));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  EXPECT_EQ(bench.optimizer->updates(), 10);
}

TEST_P(OptimizerCuda, CopyIsOfParametersEvenIfAveragesAreUsed) {
  const auto& [named, n] = GetParam();
  for (const DType half : {DType::kBF16, DType::kFP16}) {
    Bench bench(named.spec, n, half);
    for (const std::uint64_t seed : {101, 102}) {
      bench.Update(RandomValues(seed, n, 2), named.spec.lr, 0);
    }
    for (int exchanges = 0; exchanges < 3; ++exchanges) {
      const std::vector<float> p = bench.parameters.Values();
      const std::vector<std::uint16_t> copy = bench.copy.Values();
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(copy[i], half == DType::kFP16 ? ToFp16(p[i]).bits : ToBf16(p[i]).bits)
            << Name(half) << " after " << exchanges;
      }
      EXPECT_OK(bench.optimizer->ExchangeAverages(bench.stream.get()));
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
  }
}

TEST_P(OptimizerCuda, ChangesNothingAfterStop) {
  const auto& [named, n] = GetParam();
  Bench bench(named.spec, n, DType::kBF16);
  const std::vector<float> good = RandomValues(7, n);
  bench.Update(good, 0.1, 0);
  const std::vector<float> parameters = bench.parameters.Values();
  const std::vector<float> state = bench.state.Values();
  std::vector<float> bad = good;
  bad.back() = std::numeric_limits<float>::quiet_NaN();
  bench.Update(bad, 0.1, 1);
  EXPECT_EQ(bench.control.Value().decision.finite, 0);
  EXPECT_EQ(bench.control.Value().decision.stopped, 1);
  bench.Update(good, 0.1, 0);
  EXPECT_EQ(bench.control.Value().decision.finite, 1);
  EXPECT_EQ(bench.control.Value().decision.stopped, 1);  // sticky
  EXPECT_EQ(bench.parameters.Values(), parameters);
  EXPECT_EQ(bench.state.Values(), state);
}

// The bad update changes nothing, the next one has the bits it would have had without it.
TEST_P(OptimizerCuda, SkipsNonFiniteUpdates) {
  const auto& [named, n] = GetParam();
  Bench bench(named.spec, n, DType::kBF16);
  std::vector<float> expected = RandomValues(1, n);
  auto cpu = *MakeOptimizer(named.spec, OptimizerRanges::One(static_cast<std::int64_t>(n)));
  const std::vector<float> good = RandomValues(7, n);
  std::vector<float> bad = good;
  bad.front() = std::numeric_limits<float>::infinity();
  for (const bool finite : {true, true, false, false, true}) {
    const std::int64_t updates = bench.optimizer->updates();
    bench.Update(finite ? good : bad, 0.1, 0, 1, 10, /*continue_if_nonfinite=*/true);
    EXPECT_EQ(bench.control.Value().decision.finite, finite ? 1 : 0);
    EXPECT_EQ(bench.control.Value().decision.stopped, 0);
    if (finite) {
      cpu->Step(expected, good, 0.1, 1);
      cpu->Average(expected);
    } else {
      bench.optimizer->set_updates(updates);
    }
    EXPECT_EQ(bench.parameters.Values(), expected);
    std::vector<float> state = bench.state.Values();
    state.pop_back();
    EXPECT_EQ(state, std::vector<float>(cpu->state().begin(), cpu->state().end()));
  }
  bench.Update(good, 0.1, 0, 1, 9,
               /*continue_if_nonfinite=*/true);  // a wrong count is never outlived
  EXPECT_EQ(bench.control.Value().decision.stopped, 1);
  EXPECT_EQ(bench.parameters.Values(), expected);
}

// A finite gradient may still lead to parameters that are not: the next update is not finite.
TEST_P(OptimizerCuda, DetectsOverflowingParameters) {
  const auto& [named, n] = GetParam();
  Bench bench(named.spec, n, DType::kBF16);
  std::vector<float> g(n);
  bench.Update(g, 0.1, 0);
  EXPECT_EQ(bench.control.Value().parameters_not_finite, 0);
  g.back() = 2;
  bench.Update(g, 3e38, 0);
  EXPECT_EQ(bench.control.Value().decision.finite, 1);
  EXPECT_EQ(bench.control.Value().parameters_not_finite, 1);
  for (int i = 0; i < 2; ++i) {
    bench.Update(std::vector<float>(n), 0.1, 0);
    EXPECT_EQ(bench.control.Value().decision.finite, 0);
    EXPECT_EQ(bench.control.Value().decision.stopped, 1);
    EXPECT_TRUE(std::isnan(bench.control.Value().decision.norm)) << "what other ranks see";
  }
}

std::string ParamName(
    const ::testing::TestParamInfo<std::tuple<NamedOptimizer, std::size_t>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param));
}

// AdamW's second moments begin after the first ones, aligned to 16 bytes: multiples of 4 there.
// sgd_ema has its averages alone.
INSTANTIATE_TEST_SUITE_P(All, OptimizerCuda,
                         ::testing::Combine(::testing::ValuesIn(kEveryOptimizer),
                                            ::testing::Values(4, 32, 1000, 4100, 40000)),
                         ParamName);
INSTANTIATE_TEST_SUITE_P(Odd, OptimizerCuda,
                         ::testing::Combine(::testing::ValuesIn(std::begin(kEveryOptimizer),
                                                                std::end(kEveryOptimizer) - 2),
                                            ::testing::Values(1, 31, 33, 4097)),
                         ParamName);

// Ranges of several groups, with gaps (frozen), longer and shorter than what a block takes.
TEST(OptimizerCudaGroups, AreBitIdenticalToCpu) {
  FlatLayout layout;
  ASSERT_TRUE(layout.Add("frozen.weight", {40}, {}, true).ok());
  ASSERT_TRUE(layout.Add("a.weight", {2500}).ok());
  ASSERT_TRUE(layout.Add("a.bias", {7}, kNoDecay).ok());
  ASSERT_TRUE(layout.Add("frozen.bias", {1100}, {}, true).ok());
  ASSERT_TRUE(layout.Add("b.weight", {1024}, {.weight_decay = 0.2, .lr_factor = 0.25}).ok());
  ASSERT_TRUE(layout.Add("b.bias", {3}, kNoDecay).ok());
  const OptimizerRanges ranges = OptimizerRanges::Make(layout);
  const auto n = static_cast<std::size_t>(layout.size());
  EXPECT_EQ(CudaOptimizer::TableBytes(OptimizerRanges::One(layout.size()), layout.size()), 0);
  EXPECT_EQ(CudaOptimizer::TableBytes(ranges, layout.size()), 6 * 24);
  for (const NamedOptimizer& named : kEveryOptimizer) {
    Bench bench(named.spec, n, DType::kBF16, &ranges);
    std::vector<float> expected = RandomValues(1, n);
    auto cpu = *MakeOptimizer(named.spec, ranges);
    for (std::uint64_t update = 1; update <= 3; ++update) {
      const std::vector<float> g = RandomValues(100 + update, n, 2);
      bench.Update(g, named.spec.lr, 0);
      cpu->Step(expected, g, named.spec.lr, 1);
      cpu->Average(expected);
    }
    EXPECT_OK(bench.optimizer->ExchangeAverages(bench.stream.get()));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cpu->ExchangeAverages(expected), named.spec.ema.has_value());
    EXPECT_EQ(bench.parameters.Values(), expected) << named.name;
    std::vector<float> state = bench.state.Values();
    state.pop_back();
    EXPECT_EQ(state, std::vector<float>(cpu->state().begin(), cpu->state().end())) << named.name;
  }
}

TEST(OptimizerCudaGroups, RefusesTooMany) {
  FlatLayout layout;
  for (int i = 0; i <= kMaxOptimizerGroups; ++i) {
    ASSERT_TRUE(layout.Add(std::to_string(i), {1}, {.lr_factor = 1.0 / (i + 1)}).ok());
  }
  const GpuArray<float> memory(static_cast<std::size_t>(2 * layout.size()));
  const CudaOptimizer::Buffers buffers{
      memory.data(), memory.data() + layout.size(), nullptr, nullptr, DType::kBF16, layout.size()};
  EXPECT_THAT(CudaOptimizer::Create({0.1, SgdSpec{}}, OptimizerRanges::Make(layout), buffers),
              HasKind(ErrorKind::kConfig));
}

class MeasureCuda : public ::testing::Test {
 protected:
  Bench bench_{kEveryOptimizer[0].spec, 4097, DType::kF32};
  std::vector<float> gradient_ = RandomValues(3, 4097);
};

TEST_F(MeasureCuda, DetectsNonFiniteValues) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t place : {0, 1000, 4095, 4096}) {
      Bench bench(kEveryOptimizer[0].spec, 4097, DType::kF32);
      std::vector<float> g = gradient_;
      g[place] = bad;
      bench.Update(g, 0.1, 1);
      EXPECT_EQ(bench.control.Value().decision.finite, 0) << place;
      EXPECT_EQ(bench.control.Value().decision.gradient_scale, 1.0F);
    }
  }
  bench_.Update(gradient_, 0.1, 1, std::numeric_limits<double>::infinity());
  EXPECT_EQ(bench_.control.Value().decision.finite, 0);
  EXPECT_EQ(bench_.control.Value().decision.stopped, 1);
}

// More than all blocks take at once.
TEST_F(MeasureCuda, IncludesEveryValueOfLargeGradient) {
  bench_.Update(gradient_, 0, 0);
  std::vector<float> large = RandomValues(5, (1 << 20) + 4099);
  const GpuArray<char> scratch(NormScratchBytes(std::ssize(large)));
  const auto measure = [&] {
    const GpuArray<float> gradient(large);
    Measure(bench_.stream.get(), gradient, large.size(), bench_.control.data(), scratch.data());
    return bench_.control.Value().decision;
  };
  const double norm = std::sqrt(SumOfSquares(large));
  EXPECT_NEAR(measure().norm, norm, 1e-12 * norm);
  large[(1 << 20) + 4000] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(measure().finite, 0);
}

TEST_F(MeasureCuda, SquaresOfLargeFloatsDoNotOverflow) {
  bench_.Update(std::vector<float>(4097, 3e38F), 0, 0);
  const UpdateDecision decision = bench_.control.Value().decision;
  EXPECT_EQ(decision.finite, 1);
  EXPECT_NEAR(decision.norm / (static_cast<double>(3e38F) * std::sqrt(4097.0)), 1, 1e-12);
}

TEST_F(MeasureCuda, WrongCountStops) {
  const std::vector<float> before = bench_.parameters.Values();
  bench_.Update(gradient_, 0.1, 0, 1, 9);
  const UpdateDecision decision = bench_.control.Value().decision;
  EXPECT_EQ(decision.finite, 1);
  EXPECT_EQ(decision.counted, 0);
  EXPECT_EQ(decision.stopped, 1);
  EXPECT_EQ(bench_.parameters.Values(), before);
}

// The order of the blocks does not matter. The stand-in runs them one after the other, and with
// delays it reverses the order in some kernels.
TEST(MeasureCudaOrder, NormIsDeterministic) {
  constexpr std::size_t kElements = 40'003;
  Bench bench(kEveryOptimizer[0].spec, kElements, DType::kF32);
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const std::vector<float> gradient = RandomValues(seed, kElements);
    const auto norm = [&](int delay_us) {
      if (standin::SetDelays != nullptr) standin::SetDelays(seed, delay_us);
      bench.Update(gradient, 0, 0);
      return bench.control.Value().decision.norm;
    };
    const double late = norm(1);
    EXPECT_EQ(norm(0), late) << seed;
  }
}

// Ranks share the first step, each with whole blocks but for the last one.
TEST(MeasureCudaParts, NormIsIndependentOfBlockDivision) {
  constexpr std::int64_t kElements = 300 * FlatLayout::kBlock + 37;  // the second step: two blocks
  Bench bench(kEveryOptimizer[0].spec, kElements, DType::kF32);
  bench.Update(RandomValues(7, kElements), 0, 0);
  const double norm = bench.control.Value().decision.norm;
  double* const squares = SquaresIn(bench.scratch.data());
  for (const std::int64_t blocks : {1, 150, 299, 300, 301}) {
    cudaStream_t stream = bench.stream.get();
    EXPECT_EQ(cudaMemsetAsync(squares, 0, 301 * sizeof(double), stream), cudaSuccess);
    const std::int64_t first = std::min(blocks * FlatLayout::kBlock, kElements);
    UpdateControl* const control = bench.control.data();
    EXPECT_OK(BlockSquares(stream, bench.gradient.data() + first, kElements - first, control,
                           squares + blocks));
    EXPECT_OK(BlockSquares(stream, bench.gradient.data(), first, control, squares));
    EXPECT_OK(DecideFromSquares(stream, kElements, control, bench.scratch.data()));
    EXPECT_EQ(bench.control.Value().decision.norm, norm) << blocks;
  }
}

TEST_F(MeasureCuda, SumsOverMicroSteps) {
  const cudaStream_t stream = bench_.stream.get();
  UpdateControl* control = bench_.control.data();
  const GpuArray<double> loss(std::vector<double>{2.5});
  for (int update = 0; update < 2; ++update) {
    EXPECT_OK(AddToSums(stream, control, loss.data(), nullptr, 7, true));
    EXPECT_OK(AddToSums(stream, control, loss.data(), loss.data(), 6, false));
    EXPECT_OK(AddToSums(stream, control, nullptr, nullptr, 0, false));
    const UpdateSums sums = bench_.control.Value().sums;
    EXPECT_EQ(sums.loss, 5);
    EXPECT_EQ(sums.samples, 13);
    EXPECT_EQ(sums.divisor, 9.5);  // without one of its own, the samples
  }
}

TEST_F(MeasureCuda, CastsWeights) {
  for (const std::size_t n : kOddSizes) {
    const std::vector<float> values = RandomValues(n, n, 50);
    const GpuArray<float> in(values);
    for (const DType type : {DType::kBF16, DType::kFP16}) {
      const GpuArray<std::uint16_t> out(n);
      EXPECT_OK(
          CastTo(type, bench_.stream.get(), in.data(), static_cast<std::int64_t>(n), out.data()));
      EXPECT_EQ(out.Values(), GpuFloats::Rounded(type, values));
    }
  }
}

TEST(CudaOptimizerCreate, RefusesInvalidOptions) {
  const GpuArray<float> memory(64);
  const CudaOptimizer::Buffers buffers{memory.data(), memory.data() + 16, memory.data() + 32,
                                       nullptr,       DType::kBF16,       16};
  CudaOptimizer::Buffers broken = buffers;
  broken.state = nullptr;
  EXPECT_FALSE(
      CudaOptimizer::Create({0.1, AdamWSpec{}}, OptimizerRanges::One(broken.elements), broken)
          .ok());
  broken = buffers;
  broken.gradient += 1;
  EXPECT_FALSE(
      CudaOptimizer::Create({0.1, AdamWSpec{}}, OptimizerRanges::One(broken.elements), broken)
          .ok());
  broken = buffers;
  broken.elements = 15;
  EXPECT_FALSE(
      CudaOptimizer::Create({0.1, AdamWSpec{}}, OptimizerRanges::One(broken.elements), broken)
          .ok());
  EXPECT_FALSE(CudaOptimizer::Create({0.1, AdamWSpec{.epsilon = 0}},
                                     OptimizerRanges::One(buffers.elements), buffers)
                   .ok());
  EXPECT_TRUE(
      CudaOptimizer::Create({0.1, AdamWSpec{}}, OptimizerRanges::One(buffers.elements), buffers)
          .ok());
}

}  // namespace
}  // namespace gaccd
