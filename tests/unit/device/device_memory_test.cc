#include "daemon/device/cuda/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

DeviceMemory Example() {
  DeviceMemory memory;
  memory.Add("parameters", 3 << 20);
  memory.Add("activations", std::int64_t{5} << 30);
  memory.Add("parameters", 1 << 20);
  memory.Add("evaluation", 0);
  return memory;
}

TEST(DeviceMemory, SumsByKind) {
  const DeviceMemory memory = Example();
  ASSERT_EQ(memory.items().size(), 2U);
  EXPECT_EQ(memory.items()[0].bytes, 4 << 20);
  EXPECT_EQ(memory.bytes(), (std::int64_t{5} << 30) + (4 << 20));
}

TEST(DeviceMemory, TextNamesTheLargestFirst) {
  EXPECT_EQ(Example().ToText(), "5.0 GiB: activations 5.0 GiB, parameters 4.0 MiB");
  EXPECT_EQ(DeviceMemory().ToText(), "0 B");
}

TEST(DeviceMemory, FitsExactly) {
  const DeviceMemory memory = Example();
  const std::int64_t wanted = memory.bytes() + DeviceMemory::kReserveBytes;
  EXPECT_TRUE(memory.Fits(wanted, wanted).ok());
  EXPECT_THAT(memory.Fits(wanted - 1, wanted),
              IsError(ErrorKind::kConfig, "wanted 5641338880 bytes (5.3 GiB), found 5641338879",
                      "parameters 4194304, activations 5368709120"));
}

}  // namespace
}  // namespace gaccd
