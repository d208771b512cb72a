// What NCCL finds in the environment, as flags and job ask for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "daemon/launch/launch.h"

namespace gaccd {
namespace {

constexpr const char* kVariables[] = {"NCCL_RAS_ENABLE", "NCCL_ALGO", "NCCL_NVLS_ENABLE",
                                      "NCCL_HOSTID", "CUDA_DEVICE_MAX_CONNECTIONS"};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class NcclEnvironment : public testing::Test {
 protected:
  void SetUp() override { Clear(); }
  void TearDown() override { Clear(); }
  static void Clear() {
    for (const char* name : kVariables) ::unsetenv(name);
  }
};

TEST_F(NcclEnvironment, PlainRun) {
  SetNcclEnvironment({}, false);
  EXPECT_EQ(Variable("NCCL_RAS_ENABLE"), "0");
  EXPECT_EQ(Variable("NCCL_ALGO"), "");
  EXPECT_EQ(Variable("NCCL_HOSTID"), "");
}

TEST_F(NcclEnvironment, Deterministic) {
  SetNcclEnvironment({}, true);
  EXPECT_EQ(Variable("NCCL_ALGO"), "Ring");
  EXPECT_EQ(Variable("NCCL_NVLS_ENABLE"), "0");
}

TEST_F(NcclEnvironment, KeepsUserSettings) {
  ::setenv("NCCL_ALGO", "Tree", 1);
  Flags flags;
  flags.allow_gpu_sharing = true;
  SetNcclEnvironment(flags, true);
  EXPECT_EQ(Variable("NCCL_ALGO"), "Tree");
  EXPECT_THAT(Variable("NCCL_HOSTID"), testing::HasSubstr(std::to_string(::getpid())));
}

}  // namespace
}  // namespace gaccd
