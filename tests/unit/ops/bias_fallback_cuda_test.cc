// Where cuBLASLt offers no bias gradient beside the weight gradient: only the stand-in can refuse.
#include "daemon/ops/linear.h"
#include "daemon/ops/softmax_cross_entropy.h"
#include "tests/standin/cublaslt_standin.h"
#include "tests/unit/ops/gpu_bench.h"

namespace gaccd {
namespace {

TEST(BiasGradientCuda, IsDoneByAnOwnKernelAndNoted) {
  GraphBench host;
  const ValueId x = host.Input("x", {300, 17});
  const ValueId w = host.Parameter("w", {9, 17});
  const ValueId b = host.Parameter("b", {9});
  const ValueId z = host.Apply(std::make_shared<Linear>(), {x, w, b});
  host.PrepareTraining(
      host.Apply(std::make_shared<SoftmaxCrossEntropy>(), {z, host.Labels(300, 9)}));
  for (const bool refuse : {false, true}) {
    standin::CublasLtOptions options;
    if (refuse) options.not_supported = {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB};
    standin::SetCublasLt(options);
    GpuBench gpu(host, {});
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_EQ(gpu.notes().size(), refuse ? 1U : 0U);
    if (refuse) {
      EXPECT_EQ(gpu.notes()[0],
                "cuBLASLt has no bias gradient beside the weight gradient [9, 17] from 300 rows of "
                "f32: done by a kernel of its own");
    }
    for (const bool first : {true, false}) {
      host.Run(first);
      gpu.Run(first);
      EXPECT_LT(gpu.ErrorOfGradients(host), 3e-6) << refuse;
    }
  }
  standin::SetCublasLt();
}

}  // namespace
}  // namespace gaccd
