// What NCCL finds in the environment, as flags and job ask for it.
#include "daemon/train/nccl_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace gaccd {
namespace {

constexpr const char* kVariables[] = {"NCCL_RAS_ENABLE", "NCCL_ALGO", "NCCL_NVLS_ENABLE",
                                      "NCCL_HOSTID"};

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
  SetNcclEnvironment({});
  EXPECT_EQ(Variable("NCCL_RAS_ENABLE"), "0");
  EXPECT_EQ(Variable("NCCL_ALGO"), "");
  EXPECT_EQ(Variable("NCCL_HOSTID"), "");
}

TEST_F(NcclEnvironment, DeterministicByFlagOrJob) {
  Flags flags;
  flags.job_fields = {{"deterministic", "true"}};
  SetNcclEnvironment(flags);
  EXPECT_EQ(Variable("NCCL_ALGO"), "Ring");
  EXPECT_EQ(Variable("NCCL_NVLS_ENABLE"), "0");
  Clear();
  const std::string job = testing::TempDir() + "/nccl_environment_" + std::to_string(::getpid());
  std::ofstream(job)
      << "name: \"small\" deterministic: true\n"
         "model { layer { name: \"fc\" linear { in: 4 out: 1 } } loss { mean_squared_error {} } }\n"
         "data { train { synthetic { samples: 8 features: 4 outputs: 1 } } }\n"
         "batch { target: 4 micro: 4 } optimizer { lr: 0.1 sgd {} } epochs: 1\n";
  flags = {};
  flags.job = job;
  SetNcclEnvironment(flags);
  EXPECT_EQ(Variable("NCCL_ALGO"), "Ring");
  Clear();
  flags.job_fields = {{"deterministic", "false"}};
  SetNcclEnvironment(flags);
  EXPECT_EQ(Variable("NCCL_ALGO"), "") << "the flag wins over the job";
  ::unlink(job.c_str());
}

TEST_F(NcclEnvironment, WhatTheUserHasSetStays) {
  ::setenv("NCCL_ALGO", "Tree", 1);
  Flags flags;
  flags.job_fields = {{"deterministic", "true"}};
  flags.allow_gpu_sharing = true;
  SetNcclEnvironment(flags);
  EXPECT_EQ(Variable("NCCL_ALGO"), "Tree");
  EXPECT_THAT(Variable("NCCL_HOSTID"), testing::HasSubstr(std::to_string(::getpid())));
}

}  // namespace
}  // namespace gaccd
