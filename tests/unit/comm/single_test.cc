// What is special about a group of one; the rest is in tests/ranks/conformance.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "collectives/comm/communicator.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

TEST(Single, RefusesWrongArguments) {
  const auto comm = MakeSingle();
  std::vector<float> a(4);
  std::vector<float> b(3);
  const std::array<std::int64_t, 2> two = {2, 2};
  EXPECT_FALSE(comm->AllReduceSum(View(std::span(a)), View(std::span(b))).ok());
  EXPECT_FALSE(comm->AllGather(View(std::span(a)), two, View(std::span(a))).ok());
  EXPECT_FALSE(comm->ReduceScatter(View(std::span(a)), two, View(std::span(b))).ok());
  EXPECT_FALSE(comm->Broadcast(View(std::span(a)), 1).ok());
}

TEST(Single, ReturnsErrorAfterAbort) {
  const auto comm = MakeSingle();
  comm->Abort(70);
  EXPECT_THAT(comm->Barrier(), IsError(ErrorKind::kUnavailable, "exit code 70"));
  EXPECT_FALSE(comm->Allocate(4).ok());
  EXPECT_FALSE(comm->Split(0, 0).ok());
}

TEST(HostMemory, ReportsThatThereIsNone) {
  const auto memory = AllocateHostMemory(std::size_t{1} << 62);
  EXPECT_THAT(memory, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(
      memory,
      HasMessage(::testing::ContainsRegex("wanted 4611686018427387904 bytes, [0-9]+ are free")));
}

}  // namespace
}  // namespace gaccd
