#include "daemon/telemetry/environment_text.h"

#include <gtest/gtest.h>

namespace gaccd {
namespace {

TEST(EnvironmentTextTest, KeepsSettingsAndOmitsSecrets) {
  const char* const environment[] = {"UCX_TLS=sm",      "HOME=/root",
                                     "SLURM_JWT=abc",   "SLURM_JOB_ID=7",
                                     "NCCL_API_KEY=k",  "NCCL_DEBUG=WARN=\"x\"",
                                     "GACCD_TOKEN_A=t", "SLURM_NOVALUE",
                                     "PRTE_MCA_a=b",    nullptr};
  EXPECT_EQ(EnvironmentJson(environment),
            R"({"NCCL_DEBUG":"WARN=\"x\"","PRTE_MCA_a":"b","SLURM_JOB_ID":"7",)"
            R"("SLURM_NOVALUE":"","UCX_TLS":"sm"})");
  const char* const empty[] = {nullptr};
  EXPECT_EQ(EnvironmentJson(empty), "{}");
}

TEST(EnvironmentTextTest, DetectsSecretsByNameInAnyCase) {
  const char* const environment[] = {"SLURM_authToken=a",
                                     "GACCD_Password=b",
                                     "NCCL_CREDENTIALS=c",
                                     "UCX_COOKIE=d",
                                     "OMPI_MCA_orte_precondition_transports=e",
                                     "OMPI_MCA_btl=self",
                                     nullptr};
  EXPECT_EQ(EnvironmentJson(environment), R"({"OMPI_MCA_btl":"self"})");
}

TEST(EnvironmentTextTest, HidesSecretValuesUnderOtherNames) {
  for (const char* value :
       {"ghp_16C7e42F292c6912E7", "hf_abcdefgh", "eyJhbGciOiJIUzI1NiJ9.e30.x",
        "AKIAIOSFODNN7EXAMPLE", "https://user:pw@example.org/x", "--api-key=abc --x",
        "user=a;Password=b", "X-Auth: abc", "-----BEGIN PRIVATE KEY-----"}) {
    const std::string entry = std::string("SLURM_JOB_COMMENT=") + value;
    const char* const environment[] = {entry.c_str(), nullptr};
    EXPECT_EQ(EnvironmentJson(environment), R"({"SLURM_JOB_COMMENT":"[hidden]"})") << value;
  }
  for (const char* value : {"tcp://10.0.0.1:80/x@y", "sky-line", "monkey business", "/a/path:/b"}) {
    const std::string entry = std::string("SLURM_JOB_COMMENT=") + value;
    const char* const environment[] = {entry.c_str(), nullptr};
    EXPECT_EQ(EnvironmentJson(environment).find("[hidden]"), std::string::npos) << value;
  }
}

// Values come from the user who submitted the job.
TEST(EnvironmentTextTest, ValuesAreCutAndEscaped) {
  const std::string name = "SLURM_JOB_NAME=$(reboot);'\n\x1b[2J" + std::string(1 << 20, 'x');
  const char* const environment[] = {name.c_str(), nullptr};
  const std::string json = EnvironmentJson(environment);
  EXPECT_LT(json.size(), 5000u);
  EXPECT_EQ(json.find('\n'), std::string::npos);
  EXPECT_EQ(json.rfind(R"({"SLURM_JOB_NAME":"$(reboot);'\n\u001b[2Jxxx)", 0), 0u);
}

}  // namespace
}  // namespace gaccd
