// Checkpoints inside an update of which micro-steps run in parts (daemon/engine/divided_steps.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/engine_runs.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

// Rank 1 has no memory for a micro-batch: so many times it was asked before.
class ResumeWithoutMemoryTest : public ResumeTest {
 protected:
  Status RunRanks(int ranks, const RankBody& body) override {
    return RunThreadRanks(ranks, {}, [&](Communicator& comm) {
      EngineChoice choice;
      if (comm.rank() == 1) {
        choice.refuses_memory = [asked = 0, at = refused_](std::int64_t) mutable {
          return ++asked == at;
        };
      }
      return body(comm, choice, nullptr);
    });
  }
  int refused_ = 0;  // 0: never
};

// What a checkpoint inside an update holds is the same, whether its micro-steps ran in parts or
// will. Every update has 3 of them.
TEST_F(ResumeWithoutMemoryTest, ContinuesInsideUpdateWithPartsAndWholeMicroSteps) {
  const Job job = SmallJob();
  const auto plain = ValueOrThrow(Train(job, 3, 0, "never"));
  for (const int refused : {10, 11}) {  // of update 4
    std::filesystem::remove_all(ckpt());
    refused_ = refused;
    ASSERT_THAT(Train(job, 3, 100, "never", {4, 2}), HasKind(ErrorKind::kTempFail));
    EXPECT_TRUE(std::filesystem::exists(
        ckpt() + "/" + Generation{.epoch = 1, .step = 3, .micro_step = 2}.name() + "/MANIFEST"));
    for (const int refused_then : {0, 1}) {
      refused_ = refused_then;
      const auto resumed = ValueOrThrow(Train(job, 3, 0, "auto"));
      EXPECT_EQ(resumed.first, 3);
      EXPECT_LT(Distance(resumed.weights, plain.weights), 1e-5);
      EXPECT_EQ(resumed.summary.samples, 3 * 230);
      EXPECT_EQ(resumed.summary.allocation_retries, refused_then);
    }
  }
}

}  // namespace
}  // namespace gaccd::tests
