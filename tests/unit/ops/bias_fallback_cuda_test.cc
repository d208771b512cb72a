// Where cuBLASLt does not offer an epilogue, or offers one that does not run: only the stand-in can
// refuse.
#include <set>
#include <string>

#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/product/linear.h"
#include "tests/standin/cublaslt_standin.h"
#include "tests/standin/standin.h"
#include "tests/support/gpu_bench.h"

namespace gaccd {
namespace {

constexpr auto kDefault = CUBLASLT_EPILOGUE_DEFAULT;

struct Sizes {
  std::int64_t samples, in, hidden, out;
};
// The gradient of the first weight has 2 x 2 tiles, enough for the 4 multiprocessors of the
// stand-in GPU; that of the second one has 2.
constexpr Sizes kMany{300, 130, 129, 9};

// Two layers.
void Prepare(GraphBench& host, WeightOrder order, const Sizes& sizes) {
  const auto layer = [&](const std::string& name, ValueId x, std::int64_t in, std::int64_t width) {
    const bool in_out = order == WeightOrder::kInOut;
    const Shape shape = in_out ? Shape{in, width} : Shape{width, in};
    return host.Apply(
        std::make_shared<Linear>(false, order),
        {x, host.Parameter("w" + name, shape, 0.1), host.Parameter("b" + name, {width})});
  };
  const ValueId x = host.Input("x", {sizes.samples, sizes.in});
  const ValueId h = host.Apply(std::make_shared<Relu>(), {layer("1", x, sizes.in, sizes.hidden)});
  host.PrepareTraining(
      host.Apply(std::make_shared<TokenCrossEntropy>(),
                 {layer("2", h, sizes.hidden, sizes.out), host.Labels(sizes.samples, sizes.out)}));
}

// The products with this epilogue that a micro-step runs. check(first): after each.
template <typename Check>
std::int64_t RunsWith(GpuBench& gpu, cublasLtEpilogue_t epilogue, const Check& check) {
  const auto before = standin::CountCublasLt().products_with;
  for (const bool first : {true, false}) {
    gpu.Run(first);
    check(first);
  }
  const auto count = [&](const auto& products) {
    const auto found = products.find(epilogue);
    return found == products.end() ? 0 : found->second;
  };
  return (count(standin::CountCublasLt().products_with) - count(before)) / 2;
}

// Its gradients are those of the CPU.
std::int64_t RunsWith(GraphBench& host, GpuBench& gpu, cublasLtEpilogue_t epilogue) {
  return RunsWith(gpu, epilogue, [&](bool first) {
    host.Run(first);
    EXPECT_LT(gpu.ErrorOfGradients(host), 3e-6);
  });
}

class LinearCuda : public testing::TestWithParam<WeightOrder> {
 protected:
  void TearDown() override { standin::SetCublasLt(); }
  [[nodiscard]] static cublasLtEpilogue_t Sums() {
    return GetParam() == WeightOrder::kOutIn ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA;
  }
  static void ExpectSameGradients(const standin::CublasLtOptions& options, std::size_t notes,
                                  std::int64_t with_sums) {
    for (const Sizes& sizes : {kMany, Sizes{1, 130, 129, 2}}) {
      GraphBench host;
      Prepare(host, GetParam(), sizes);
      standin::SetCublasLt(options);
      GpuBench gpu(host, {});
      ASSERT_FALSE(HasFatalFailure());
      EXPECT_EQ(gpu.notes().size(), notes);
      EXPECT_EQ(RunsWith(host, gpu, Sums()), with_sums) << sizes.samples;
    }
  }
};

TEST_P(LinearCuda, UsesAvailableEpilogues) { ExpectSameGradients({}, 0, 1); }

TEST_P(LinearCuda, BiasGradientInOwnKernel) {
  ExpectSameGradients({.not_supported = {Sums()}}, 1, 0);
  ExpectSameGradients({.refused = {Sums()}}, 1, 0);
}

TEST_P(LinearCuda, BiasAndReluInOwnKernel) {
  const std::set<cublasLtEpilogue_t> bias = {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS};
  ExpectSameGradients({.not_supported = bias}, 2, 1);
  ExpectSameGradients({.refused = bias}, 2, 1);
}

TEST_P(LinearCuda, BiasGradientOfFewTilesUsesKernel) {
  GraphBench host;
  Prepare(host, GetParam(), {300, 127, 129, 9});
  GpuBench gpu(host, {});
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_TRUE(gpu.notes().empty());
  EXPECT_EQ(RunsWith(host, gpu, Sums()), 0);
}

// By the clock, also where the tiles are few.
TEST_P(LinearCuda, UsesFasterBiasGradient) {
  const standin::VirtualClock clock;
  for (const bool sums_are_slow : {true, false}) {
    GraphBench host;
    Prepare(host, GetParam(), {40, 130, 129, 9});
    standin::SetCublasLt({.slow = {sums_are_slow ? Sums() : kDefault}, .delay_us = 50'000});
    GpuBench gpu(host, {.numerics = {.time_algorithms = true}});
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_TRUE(gpu.notes().empty());
    EXPECT_EQ(RunsWith(host, gpu, Sums()), sums_are_slow ? 0 : 2);
  }
}

// Two layers with GELU between, in 16 bits; and the products that keep its input, and that take its
// slope.
class GeluCuda : public testing::TestWithParam<WeightOrder> {
 protected:
  void SetUp() override { Record(host_, DType::kBF16); }
  void TearDown() override { standin::SetCublasLt(); }

  static void Record(GraphBench& host, DType type) {
    const auto layer = [&](const std::string& name, ValueId x, std::int64_t in, std::int64_t out) {
      const Shape shape = GetParam() == WeightOrder::kInOut ? Shape{in, out} : Shape{out, in};
      return host.Apply(
          std::make_shared<Linear>(false, GetParam()),
          {x, host.Parameter("w" + name, shape, 0.5), host.Parameter("b" + name, {out})});
    };
    const ValueId x = host.Apply(
        std::make_shared<Embedding>(type),
        {host.Ids("ids", {7}, {1, 0, 3, 2, 5, 6, 4}), host.Parameter("table", {7, 17}, 1)});
    const ValueId y = host.Apply(std::make_shared<Activation>(ActivationKind::kGeluTanh),
                                 {layer("1", x, 17, 24)});
    host.RecordTraining(host.Apply(std::make_shared<TokenCrossEntropy>(),
                                   {layer("2", y, 24, 9), host.Labels(7, 9)}));
  }
  static GpuBench::Options MakeOptions(bool fuse, bool timed = false) {
    return {.fuse = fuse,
            .copy = DType::kBF16,
            .numerics = {.deterministic = !timed, .time_algorithms = timed}};
  }
  // Its gradients are those of a product and a kernel.
  std::int64_t RunsWith(GpuBench& gpu, cublasLtEpilogue_t epilogue) {
    GpuBench separate(host_, MakeOptions(false));
    return gaccd::RunsWith(gpu, epilogue, [&](bool first) {
      separate.Run(first);
      EXPECT_LT(RelativeError(gpu.written_gradients(), separate.written_gradients()), 2e-2);
    });
  }

  GraphBench host_;
};

constexpr auto kKeep = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
constexpr auto kSlope = CUBLASLT_EPILOGUE_DGELU;

TEST_P(GeluCuda, FusedIntoProducts) {
  GpuBench gpu(host_, MakeOptions(true));
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_TRUE(gpu.notes().empty());
  EXPECT_EQ(RunsWith(gpu, kKeep), 1);
  EXPECT_EQ(RunsWith(gpu, kSlope), 1);
}

// cuBLASLt's GELU in f32 is off by 1e-5.
TEST_P(GeluCuda, UsesOwnKernelInF32) {
  GraphBench host;
  Record(host, DType::kF32);
  GpuBench gpu(host, {});
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_TRUE(gpu.notes().empty());
  for (const auto epilogue : {kKeep, kSlope}) {
    EXPECT_EQ(gaccd::RunsWith(gpu, epilogue, [](bool) {}), 0);
  }
}

// Not offered, or offered and refused when they run.
TEST_P(GeluCuda, UsesOwnKernel) {
  for (const standin::CublasLtOptions& options :
       {standin::CublasLtOptions{.not_supported = {kKeep, kSlope}},
        standin::CublasLtOptions{.refused = {kKeep, kSlope}}}) {
    standin::SetCublasLt(options);
    GpuBench gpu(host_, MakeOptions(true));
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(gpu.notes().size(), 2U);
    for (const std::string& note : gpu.notes()) {
      EXPECT_NE(note.find("GELU is done by a kernel of its own"), std::string::npos) << note;
    }
    EXPECT_EQ(RunsWith(gpu, kKeep), 0);
    EXPECT_EQ(RunsWith(gpu, kSlope), 0);
  }
}

// A head of an odd vocabulary with a bias, in 16 bits: with rows that have a stride as without, but
// for the order of the sums in the loss, whatever the epilogues are.
TEST(OddVocabularyCuda, WithAStride) {
  constexpr std::int64_t kVocabulary = 1030;
  const std::set<cublasLtEpilogue_t> own = {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADB};
  for (const auto& not_supported : {std::set<cublasLtEpilogue_t>{}, own}) {
    GraphBench host;
    const ValueId table = host.Parameter("table", {7, 24});
    const ValueId x = host.Apply(std::make_shared<Embedding>(DType::kBF16),
                                 {host.Ids("ids", {7}, {1, 0, 3, 2, 5, 6, 4}), table});
    const ValueId z =
        host.Apply(std::make_shared<Linear>(),
                   {x, host.Parameter("w", {kVocabulary, 24}), host.Parameter("b", {kVocabulary})});
    host.RecordTraining(host.Apply(
        std::make_shared<TokenCrossEntropy>(TokenCrossEntropyOptions{.label_smoothing = 0.25F}),
        {z, host.Labels(7, kVocabulary)}));
    standin::SetCublasLt({.not_supported = not_supported});
    GpuBench padded(host, {.copy = DType::kBF16});
    GpuBench dense(host, {.copy = DType::kBF16, .dense = true});
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    EXPECT_EQ(padded.graph().value(z).spec.row_stride, 1088);
    EXPECT_EQ(dense.graph().value(z).spec.row_stride, 0);
    for (const bool first : {true, false}) {
      padded.Run(first);
      dense.Run(first);
      EXPECT_NEAR(
          padded.Output<double>(host.objective_id()) / dense.Output<double>(host.objective_id()), 1,
          1e-6);
      EXPECT_LT(RelativeError(padded.written_gradients(), dense.written_gradients()), 1e-4);
    }
    standin::SetCublasLt();
  }
}

TEST_P(GeluCuda, UsesFasterImplementation) {
  const standin::VirtualClock clock;
  for (const bool fused_is_slow : {true, false}) {
    using Epilogues = std::set<cublasLtEpilogue_t>;
    standin::SetCublasLt({.slow = fused_is_slow ? Epilogues{kKeep, kSlope}
                                                : Epilogues{CUBLASLT_EPILOGUE_BIAS, kDefault},
                          .delay_us = 50'000});
    GpuBench gpu(host_, MakeOptions(true, /*timed=*/true));
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_TRUE(gpu.notes().empty());
    EXPECT_EQ(RunsWith(gpu, kKeep), fused_is_slow ? 0 : 1);
    EXPECT_EQ(RunsWith(gpu, kSlope), fused_is_slow ? 0 : 1);
  }
}

constexpr auto kOrderName = [](const auto& order) {
  return order.param == WeightOrder::kOutIn ? "out_in" : "in_out";
};
INSTANTIATE_TEST_SUITE_P(Orders, GeluCuda,
                         testing::Values(WeightOrder::kOutIn, WeightOrder::kInOut), kOrderName);
INSTANTIATE_TEST_SUITE_P(Orders, LinearCuda,
                         testing::Values(WeightOrder::kOutIn, WeightOrder::kInOut), kOrderName);

}  // namespace
}  // namespace gaccd
