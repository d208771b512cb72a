#include "tests/support/tested_ranks.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/support/status_matchers.h"

namespace gaccd::tests {

std::vector<EngineRun> RunTestedRanks(const EngineCase& test, const EngineRanks& ranks) {
  std::vector<EngineRun> runs;
  for (Result<EngineRun>& run : TryTestedRanks(test, ranks)) {
    EXPECT_OK(run);
    if (!run.ok()) return {};
    runs.push_back(*std::move(run));
  }
  return runs;
}

}  // namespace gaccd::tests
