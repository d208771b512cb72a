// single and threads do what every communicator must do, on 1..8 ranks and several nodes.
#include <gtest/gtest.h>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "tests/ranks/conformance.h"
#include "tests/sanitized.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

// Fewer under sanitizers; a segment of 2^20 elements holds either.
constexpr tests::ConformanceOptions kSize =
    tests::kSanitized ? tests::ConformanceOptions{.largest = 150'000} : tests::ConformanceOptions{};

class ConformanceTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  static const tests::ConformanceCase& Case() { return tests::ConformanceCases()[GetParam()]; }
};

TEST_P(ConformanceTest, Single) {
  const auto comm = MakeSingle();
  EXPECT_OK(Case().run(*comm, kSize)) << Case().name;
}

TEST_P(ConformanceTest, OneToEightThreads) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const Status status =
        RunThreadRanks(ranks, {}, [](Communicator& comm) { return Case().run(comm, kSize); });
    EXPECT_TRUE(status.ok()) << Case().name << ", " << ranks << " ranks: " << status.message();
  }
}

TEST_P(ConformanceTest, ThreadsOnSeveralNodes) {
  ThreadGroupOptions options;
  options.ranks_per_node = 3;
  const Status status =
      RunThreadRanks(7, options, [](Communicator& comm) { return Case().run(comm, kSize); });
  EXPECT_TRUE(status.ok()) << Case().name << ": " << status.message();
}

INSTANTIATE_TEST_SUITE_P(Cases, ConformanceTest,
                         ::testing::Range<std::size_t>(0, tests::ConformanceCases().size()));

// All in one run on the same communicator, as a run does.
TEST(Conformance, AllCasesOnOneCommunicator) {
  EXPECT_OK(RunThreadRanks(
      4, {}, [](Communicator& comm) { return tests::RunConformance(comm, {.largest = 5000}); }));
}

// The size of the published case: more ranks than the machine has cores by far. Sanitizers get by
// with fewer: they make 240 threads very slow.
constexpr int kNodes = tests::kSanitized ? 3 : 30;

TEST(Conformance, ManyMoreThreadsThanCores) {
  ThreadGroupOptions options;
  options.ranks_per_node = 8;
  const Status status = RunThreadRanks(8 * kNodes, options, [](Communicator& comm) {
    if (comm.topology().nodes != kNodes) {
      return Status(ErrorKind::kInternal, StrCat("found ", comm.topology().nodes, " nodes"));
    }
    for (const tests::ConformanceCase& test : tests::ConformanceCases()) {
      // Every rank as root with 20 sizes, and every rank late in turn, would only take time.
      if (test.name.starts_with("broadcast") || test.name.starts_with("barrier")) continue;
      GACCD_RETURN_IF_ERROR(test.run(comm, {.largest = 300}).WithContext(test.name));
    }
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace gaccd
