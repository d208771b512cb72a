// Gradients of collective operations on 1..4 ranks as threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/comm/threads.h"
#include "tests/ranks/op_gradients.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

TEST(CollectiveGradients, EqualFiniteDifferences) {
  for (const tests::GradientCase& test : tests::GradientCases()) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      const Status status =
          RunThreadRanks(ranks, {}, [&](Communicator& comm) { return test.run(comm); });
      EXPECT_TRUE(status.ok()) << test.name << ", " << ranks << " ranks: " << status.message();
    }
  }
}

TEST(CollectiveGradients, EqualFiniteDifferencesOnAGroupOfOne) {
  for (const tests::GradientCase& test : tests::GradientCases()) {
    EXPECT_OK(test.run(*MakeSingle())) << test.name;
  }
}

TEST(CollectiveGradients, DetectsWrongGradients) {
  for (const tests::GradientCase& test : tests::WrongGradientCases()) {
    for (int ranks = 2; ranks <= 4; ++ranks) {
      const Status status =
          RunThreadRanks(ranks, {}, [&](Communicator& comm) { return test.run(comm); });
      EXPECT_THAT(status, HasMessage(AnyOf(HasSubstr("finite differences"),
                                           HasSubstr("the gradient is wrong"))))
          << test.name << ", " << ranks << " ranks: not seen";
    }
  }
}

}  // namespace
}  // namespace gaccd
