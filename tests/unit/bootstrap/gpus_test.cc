// The GPUs of this process, over the stand-in GPU.
#include "collectives/bootstrap/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/comm/threads.h"
#include "tests/standin/standin.h"
#include "tests/unit/base/status_matchers.h"

namespace gaccd {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(Gpus, Facts) {
  standin::Reset({.devices = 3, .memory_bytes = std::size_t{1} << 30});
  const auto gpus = FindGpus();
  ASSERT_TRUE(gpus.ok()) << gpus.status().message();
  ASSERT_EQ(gpus->size(), 3U);
  for (int device = 0; device < 3; ++device) {
    const GpuFacts& gpu = (*gpus)[static_cast<std::size_t>(device)];
    EXPECT_EQ(gpu.device, device);
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_THAT(gpu.uuid, MatchesRegex("GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-"
                                       "[0-9a-f]{12}"));
    EXPECT_THAT(gpu.pci, MatchesRegex("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\\.0"));
    EXPECT_EQ(gpu.memory_bytes, 1 << 30);
    EXPECT_GE(gpu.compute_capability, 80);
  }
  EXPECT_NE((*gpus)[0].uuid, (*gpus)[1].uuid);
}

TEST(Gpus, WhyThereIsNone) {
  standin::Reset({.devices = 1, .driver = standin::Driver::kMissing});
  auto gpus = FindGpus();
  ASSERT_FALSE(gpus.ok());
  EXPECT_THAT(gpus, HasKind(ErrorKind::kUnavailable));
  EXPECT_THAT(gpus, HasMessage(HasSubstr("driver")));
  standin::Reset({.devices = 1, .driver = standin::Driver::kNoDevice});
  gpus = FindGpus();
  ASSERT_FALSE(gpus.ok());
  EXPECT_THAT(gpus, HasKind(ErrorKind::kUnavailable));
  standin::Reset();
}

TEST(Gpus, OneForTwoRanksIsRefusedUnlessShared) {
  standin::Reset({.devices = 1});
  const Status refused = RunThreadRanks(2, {}, [](Communicator& over) {
    const auto gpu = AssignGpu(over, /*allow_sharing=*/false);
    EXPECT_FALSE(gpu.ok());
    EXPECT_THAT(gpu, HasKind(ErrorKind::kConfig));
    EXPECT_THAT(gpu, HasMessage(HasSubstr("rank 0 on node0 and rank 1 on node0")));
    const auto shared = AssignGpu(over, /*allow_sharing=*/true);
    EXPECT_TRUE(shared.ok());
    return shared.status();
  });
  EXPECT_TRUE(refused.ok()) << refused.message();
}

}  // namespace
}  // namespace gaccd
