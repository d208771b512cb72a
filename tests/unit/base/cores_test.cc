#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collectives/base/thread.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

TEST(AllowedCores, EqualAffinityOfThisThread) {
  const auto numbers = CoreNumbers(ValueOrThrow(AllowedCores()));
  EXPECT_FALSE(numbers.empty());
  EXPECT_TRUE(std::ranges::is_sorted(numbers));
}

// A kernel that may have 8192 cores refuses shorter masks.
TEST(AllowedCores, HandlesMoreCpusThanCpuSetHolds) {
  const CoreMask mask = ValueOrThrow(AllowedCores([](std::size_t bytes, cpu_set_t* to) {
    if (bytes < 8192 / 8) {
      errno = EINVAL;
      return -1;
    }
    CPU_SET_S(3, bytes, to);
    CPU_SET_S(5000, bytes, to);
    return 0;
  }));
  EXPECT_THAT(CoreNumbers(mask), ElementsAre(3, 5000));
}

TEST(AllowedCores, ReturnsErrorThatLongerMaskDoesNotFix) {
  for (const int error : {EINVAL, EPERM}) {
    const auto refuse = [error](std::size_t /*bytes*/, cpu_set_t* /*mask*/) {
      errno = error;
      return -1;
    };
    EXPECT_THAT(AllowedCores(refuse), IsError(ErrorKind::kOs, std::strerror(error)));
  }
}

}  // namespace
}  // namespace gaccd
