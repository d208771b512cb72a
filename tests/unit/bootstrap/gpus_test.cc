// The GPUs of this process, over the stand-in GPU.
#include "collectives/bootstrap/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/comm/threads.h"
#include "tests/standin/standin.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

TEST(Gpus, Facts) {
  standin::Reset({.devices = 3, .memory_bytes = std::size_t{1} << 30});
  const auto gpus = ValueOrThrow(FindGpus());
  ASSERT_EQ(gpus.size(), 3U);
  for (int device = 0; device < 3; ++device) {
    const GpuFacts& gpu = gpus[static_cast<std::size_t>(device)];
    EXPECT_EQ(gpu.device, device);
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_THAT(gpu.uuid, MatchesRegex("GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-"
                                       "[0-9a-f]{12}"));
    EXPECT_THAT(gpu.pci, MatchesRegex("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\\.0"));
    EXPECT_EQ(gpu.memory_bytes, 1 << 30);
    EXPECT_GE(gpu.compute_capability, 80);
  }
  EXPECT_NE(gpus[0].uuid, gpus[1].uuid);
}

TEST(Gpus, ReportsWhyThereIsNone) {
  standin::Reset({.devices = 1, .driver = standin::Driver::kMissing});
  auto gpus = FindGpus();
  EXPECT_THAT(gpus, IsError(ErrorKind::kUnavailable, "driver"));
  standin::Reset({.devices = 1, .driver = standin::Driver::kNoDevice});
  gpus = FindGpus();
  EXPECT_THAT(gpus, HasKind(ErrorKind::kUnavailable));
  standin::Reset();
}

TEST(Gpus, RefusesOneForTwoRanksUnlessShared) {
  standin::Reset({.devices = 1});
  const std::vector<GpuFacts> gpus = ValueOrThrow(FindGpus());
  ExpectOk(RunThreadRanks(2, {}, [&gpus](Communicator& over) {
    EXPECT_THAT(AssignGpu(over, gpus, /*allow_sharing=*/false),
                IsError(ErrorKind::kConfig, "rank 0 on node0 and rank 1 on node0"));
    const auto shared = AssignGpu(over, gpus, /*allow_sharing=*/true);
    EXPECT_TRUE(shared.ok());
    return shared.status();
  }));
}

}  // namespace
}  // namespace gaccd
