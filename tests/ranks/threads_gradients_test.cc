// Gradients of collective operations on 1..4 ranks as threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/comm/threads.h"
#include "tests/ranks/op_gradients.h"
#include "tests/unit/base/status_matchers.h"

namespace gaccd {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

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
    const Status status = test.run(*MakeSingle());
    EXPECT_TRUE(status.ok()) << test.name << ": " << status.message();
  }
}

TEST(CollectiveGradients, WrongOnesAreSeen) {
  for (const tests::GradientCase& test : tests::WrongGradientCases()) {
    for (int ranks = 2; ranks <= 4; ++ranks) {
      const Status status =
          RunThreadRanks(ranks, {}, [&](Communicator& comm) { return test.run(comm); });
      ASSERT_FALSE(status.ok()) << test.name << ", " << ranks << " ranks: not seen";
      EXPECT_THAT(status, HasMessage(AnyOf(HasSubstr("finite differences"),
                                           HasSubstr("the gradient is wrong"))));
    }
  }
}

}  // namespace
}  // namespace gaccd
