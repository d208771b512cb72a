#include "daemon/telemetry/environment_text.h"

#include <gtest/gtest.h>

namespace gaccd {
namespace {

TEST(EnvironmentTextTest, KeepsSettingsAndLeavesOutSecrets) {
  const char* const environment[] = {"UCX_TLS=sm",      "HOME=/root",     "SLURM_JWT=abc",
                                     "SLURM_JOB_ID=7",  "NCCL_API_KEY=k", "NCCL_DEBUG=WARN=\"x\"",
                                     "GACCD_TOKEN_A=t", "SLURM_NOVALUE",  nullptr};
  EXPECT_EQ(EnvironmentJson(environment),
            R"({"NCCL_DEBUG":"WARN=\"x\"","SLURM_JOB_ID":"7","SLURM_NOVALUE":"","UCX_TLS":"sm"})");
  const char* const empty[] = {nullptr};
  EXPECT_EQ(EnvironmentJson(empty), "{}");
}

}  // namespace
}  // namespace gaccd
