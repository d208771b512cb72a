// NCCL as a table of functions: loaded where it is installed, and refused when it is too old.
#include "collectives/comm/nccl_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

int version = NCCL_VERSION_CODE;

NcclApi WithVersion(int code) {
  version = code;
  NcclApi api{};
  api.GetVersion = [](int* found) {
    *found = version;
    return ncclSuccess;
  };
  return api;
}

TEST(NcclApi, LoadsCompletelyOrNotAtAll) {
  const auto loaded = LoadNccl();
  if (!loaded.ok()) {
    EXPECT_THAT(loaded, IsError(ErrorKind::kUnavailable, "libnccl.so.2"));
    return;
  }
  int found = 0;
  EXPECT_EQ((*loaded)->GetVersion(&found), ncclSuccess);
  EXPECT_GE(found, kOldestNccl);
  EXPECT_NE((*loaded)->Broadcast, nullptr);
  EXPECT_EQ(*LoadNccl(), *loaded);
}

TEST(NcclApi, VersionIsNotTooOld) {
  EXPECT_TRUE(CheckNcclVersion(WithVersion(NCCL_VERSION_CODE)).ok());
  EXPECT_TRUE(CheckNcclVersion(WithVersion(NCCL_VERSION_CODE + 100)).ok());
  EXPECT_TRUE(CheckNcclVersion(WithVersion(22'703)).ok());
  EXPECT_THAT(
      CheckNcclVersion(WithVersion(22'605)),
      IsError(ErrorKind::kUnavailable, "needs 2.27.0 or newer, the loaded libnccl.so.2 is 2.26.5"));
}

TEST(NcclApi, ErrorsHaveText) {
  NcclApi api = WithVersion(NCCL_VERSION_CODE);
  api.GetErrorString = [](ncclResult_t) { return "remote error"; };
  api.GetLastError = [](ncclComm_t) { return "socket closed"; };
  EXPECT_TRUE(NcclStatus(api, nullptr, ncclInProgress, "x").ok());
  EXPECT_THAT(NcclStatus(api, nullptr, ncclRemoteError, "x"),
              HasMessage("x: remote error (socket closed)"));
}

}  // namespace
}  // namespace gaccd
