#include "daemon/engine/update_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr std::string_view kTwice = "a second sum in one update would count the first one again";

Status ExpectValues(std::span<const float> found, std::span<const float> expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (found[i] == expected[i]) continue;
    return {ErrorKind::kInternal,
            StrCat("element ", i, ": expected ", expected[i], ", found ", found[i])};
  }
  return Status::Ok();
}

// The bug of reducing in every micro-step: R * S1 + S2 instead of S1 + S2.
TEST(UpdateGraph, SumsOncePerUpdate) {
  ExpectOk(RunThreadRanks(3, {}, [](Communicator& comm) -> Status {
    std::vector<float> gradients = {1, static_cast<float>(comm.rank())};
    const MutableBuffer memory = View(std::span(gradients));
    UpdateGraph graph;
    GACCD_RETURN_IF_ERROR(graph.AllReduceSum(comm, {&memory, 1}));
    GACCD_RETURN_IF_ERROR(graph.Run(graph.Since(0)));
    GACCD_RETURN_IF_ERROR(ExpectValues(gradients, std::array{3.0F, 3.0F}));

    EXPECT_THAT(graph.Run(graph.Since(0)), IsError(ErrorKind::kInternal, std::string(kTwice)));
    GACCD_RETURN_IF_ERROR(ExpectValues(gradients, std::array{3.0F, 3.0F}));

    graph.NextUpdate();
    GACCD_RETURN_IF_ERROR(graph.Run(graph.Since(0)));
    return ExpectValues(gradients, std::array{9.0F, 9.0F});
  }));
}

TEST(UpdateGraph, SumsBucketsThenTheLastOneWithCounts) {
  ExpectOk(RunThreadRanks(4, {}, [](Communicator& comm) -> Status {
    std::vector<float> gradients(6);
    std::iota(gradients.begin(), gradients.end(), static_cast<float>(comm.rank()));
    std::vector<double> counts = {1, 13.0 - comm.rank()};
    const std::span flat(gradients);
    const MutableBuffer first = View(flat.subspan(2, 4));
    const std::array last{View(flat.first(2)), View(std::span(counts))};
    UpdateGraph graph;
    GACCD_RETURN_IF_ERROR(graph.AllReduceSum(comm, {&first, 1}));
    const std::size_t begin = graph.size();
    GACCD_RETURN_IF_ERROR(graph.AllReduceSum(comm, last));
    GACCD_RETURN_IF_ERROR(graph.Run({0, begin}));
    GACCD_RETURN_IF_ERROR(ExpectValues(flat.subspan(2), std::array{14.0F, 18.0F, 22.0F, 26.0F}));
    GACCD_RETURN_IF_ERROR(graph.Run(graph.Since(begin)));
    EXPECT_THAT(counts, testing::ElementsAre(4, 46));
    return ExpectValues(flat, std::array{6.0F, 10.0F});
  }));
}

// A rank with no part takes part; gathers may be repeated.
TEST(UpdateGraph, ScattersAndGathersUnequalPartsInPlace) {
  ExpectOk(RunThreadRanks(4, {}, [](Communicator& comm) -> Status {
    const std::vector<std::int64_t> counts = {2, 1, 0, 3};
    std::vector<float> values(6);
    std::iota(values.begin(), values.end(), static_cast<float>(10 * comm.rank()));
    UpdateGraph graph;
    GACCD_RETURN_IF_ERROR(graph.ReduceScatter(comm, View(std::span(values)), counts));
    const std::size_t begin = graph.size();
    GACCD_RETURN_IF_ERROR(graph.AllGather(comm, View(std::span(values)), counts));
    GACCD_RETURN_IF_ERROR(graph.Run({0, begin}));
    EXPECT_THAT(graph.Run({0, begin}), IsError(ErrorKind::kInternal, std::string(kTwice)));
    const std::array sums{60.0F, 64.0F, 68.0F, 72.0F, 76.0F, 80.0F};
    for (int i = 0; i < 2; ++i) {
      GACCD_RETURN_IF_ERROR(graph.Run(graph.Since(begin)));
      GACCD_RETURN_IF_ERROR(ExpectValues(values, sums));
    }
    return Status::Ok();
  }));
}

TEST(UpdateGraph, BroadcastsFromTheFirstRank) {
  ExpectOk(RunThreadRanks(3, {}, [](Communicator& comm) -> Status {
    std::vector<float> values = {static_cast<float>(comm.rank() + 5)};
    UpdateGraph graph;
    GACCD_RETURN_IF_ERROR(graph.Broadcast(comm, View(std::span(values))));
    GACCD_RETURN_IF_ERROR(graph.Run(graph.Since(0)));
    return ExpectValues(values, std::array{5.0F});
  }));
}

TEST(UpdateGraph, RefusesWhatDoesNotFitWhenItIsRecorded) {
  const auto comm = MakeSingle();
  std::vector<float> values(5);
  std::vector<std::int32_t> integers(5);
  const MutableBuffer whole_numbers = View(std::span(integers));
  UpdateGraph graph;
  EXPECT_THAT(
      graph.AllGather(*comm, View(std::span(values)), {4}),
      IsError(ErrorKind::kInternal, "expected parts of 5 elements for rank 0, found 1 parts of 4"));
  EXPECT_THAT(graph.ReduceScatter(*comm, View(std::span(values)), {2, 3}),
              IsError(ErrorKind::kInternal, "is for rank 0 of 2, this is rank 0 of 1"));
  EXPECT_THAT(graph.AllReduceSum(*comm, {&whole_numbers, 1}),
              IsError(ErrorKind::kConfig, "expected f32 or f64, found i32"));
  EXPECT_EQ(graph.size(), 0U);
}

TEST(UpdateGraph, ReturnsTheErrorOfTheCommunicator) {
  const auto comm = MakeSingle();
  std::vector<float> values(5);
  const MutableBuffer memory = View(std::span(values));
  UpdateGraph graph;
  ExpectOk(graph.AllReduceSum(*comm, {&memory, 1}));
  comm->Abort(70);
  EXPECT_THAT(graph.Run(graph.Since(0)), HasKind(ErrorKind::kUnavailable));
}

}  // namespace
}  // namespace gaccd
