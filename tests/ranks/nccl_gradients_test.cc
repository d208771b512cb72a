// Gradients of collective operations on 1..3 GPUs, over stand-ins of the GPU and of NCCL.
#include <gtest/gtest.h>

#include "tests/ranks/gpu_gradient_device.h"
#include "tests/ranks/nccl_ranks.h"
#include "tests/sanitized.h"
#include "tests/standin/cublaslt_standin.h"

namespace gaccd {
namespace {

Status RunOnGpus(const tests::GradientCase& test, int ranks) {
  tests::ResetGpus(3);
  return tests::RunNcclRanks(ranks, {}, [&](Communicator& comm, Communicator&) {
    return test.run({comm, tests::GpuGradientDevice(comm.rank(), &standin::StandInCublasLt())});
  });
}

TEST(CollectiveGradientsOnGpus, EqualFiniteDifferences) {
  for (const tests::GradientCase& test : tests::GradientCases()) {
    for (int ranks = tests::kSanitized ? 3 : 1; ranks <= 3; ++ranks) {
      const Status status = RunOnGpus(test, ranks);
      EXPECT_TRUE(status.ok()) << test.name << ", " << ranks << " ranks: " << status.message();
    }
  }
}

TEST(CollectiveGradientsOnGpus, DetectsWrongGradients) {
  for (const tests::GradientCase& test : tests::WrongGradientCases()) {
    EXPECT_FALSE(RunOnGpus(test, 3).ok()) << test.name;
  }
}

}  // namespace
}  // namespace gaccd
