// Where cuBLASLt does not offer an epilogue, or offers one that does not run: only the stand-in can
// refuse.
#include "daemon/ops/linear.h"
#include "daemon/ops/relu.h"
#include "daemon/ops/softmax_cross_entropy.h"
#include "tests/standin/cublaslt_standin.h"
#include "tests/unit/ops/gpu_bench.h"

namespace gaccd {
namespace {

// Two layers; `out` is the width of the second one.
void Prepare(GraphBench& host, std::int64_t samples, std::int64_t out) {
  const ValueId x = host.Input("x", {samples, 17});
  const ValueId w1 = host.Parameter("w1", {11, 17});
  const ValueId b1 = host.Parameter("b1", {11});
  const ValueId h =
      host.Apply(std::make_shared<Relu>(), {host.Apply(std::make_shared<Linear>(), {x, w1, b1})});
  const ValueId w2 = host.Parameter("w2", {out, 11});
  const ValueId b2 = host.Parameter("b2", {out});
  const ValueId z = host.Apply(std::make_shared<Linear>(), {h, w2, b2});
  host.PrepareTraining(
      host.Apply(std::make_shared<SoftmaxCrossEntropy>(), {z, host.Labels(samples, out)}));
}

void ExpectSameGradients(const standin::CublasLtOptions& options, std::size_t notes) {
  for (const auto& [samples, out] : {std::pair<std::int64_t, std::int64_t>{300, 9}, {1, 2}}) {
    GraphBench host;
    Prepare(host, samples, out);
    standin::SetCublasLt(options);
    GpuBench gpu(host, {});
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    EXPECT_EQ(gpu.notes().size(), notes);
    for (const bool first : {true, false}) {
      host.Run(first);
      gpu.Run(first);
      EXPECT_LT(gpu.ErrorOfGradients(host), 3e-6) << samples;
    }
    standin::SetCublasLt();
  }
}

TEST(LinearCuda, EpiloguesThatAreThere) { ExpectSameGradients({}, 0); }

TEST(LinearCuda, BiasGradientByAnOwnKernel) {
  const std::set<cublasLtEpilogue_t> sums = {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB};
  ExpectSameGradients({.not_supported = sums}, 2);
  ExpectSameGradients({.refused = sums}, 2);
}

TEST(LinearCuda, BiasAndReluByAnOwnKernel) {
  const std::set<cublasLtEpilogue_t> bias = {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS};
  ExpectSameGradients({.not_supported = bias}, 2);
  ExpectSameGradients({.refused = bias}, 2);
}

}  // namespace
}  // namespace gaccd
