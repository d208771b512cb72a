// What is special about a group of one; the rest is in tests/ranks/conformance.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "collectives/comm/communicator.h"
#include "collectives/comm/host_memory.h"
#include "tests/unit/base/status_matchers.h"

namespace gaccd {
namespace {

using ::testing::HasSubstr;

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

TEST(Single, AfterAbortOnlyAnswersWithTheError) {
  const auto comm = MakeSingle();
  comm->Abort(70);
  const Status status = comm->Barrier();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status, HasKind(ErrorKind::kUnavailable));
  EXPECT_THAT(status, HasMessage(HasSubstr("exit code 70")));
  EXPECT_FALSE(comm->Allocate(4).ok());
  EXPECT_FALSE(comm->Split(0, 0).ok());
}

TEST(HostMemory, SaysSoWhenThereIsNone) {
  const auto memory = AllocateHostMemory(std::size_t{1} << 62);
  ASSERT_FALSE(memory.ok());
  EXPECT_THAT(memory, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(
      memory,
      HasMessage(::testing::ContainsRegex("wanted 4611686018427387904 bytes, [0-9]+ are free")));
}

}  // namespace
}  // namespace gaccd
