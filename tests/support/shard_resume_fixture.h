// Trainings with a sharded optimiser on the tested device, saved and continued.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/files.h"
#include "daemon/checkpoint/shard.h"
#include "tests/support/engine_ranks.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tested_ranks.h"

namespace gaccd::tests {

class ShardResumeTest : public ResumeTest {
 protected:
  Status RunRanks(int ranks, const RankBody& body) override {
    if (on_cpus_) return ResumeTest::RunRanks(ranks, body);
    const Nodes nodes = node_of_.empty() ? Nodes(static_cast<std::size_t>(ranks)) : node_of_;
    return OnTestedRanks(
        nodes,
        [&](Communicator& over, const EngineChoice& choice, Communicator* device_comm) -> Status {
          if (!two_levels_) return body(over, choice, device_comm);
          GACCD_ASSIGN_OR_RETURN(const auto two_levels, TwoLevelCommunicator::Make(over));
          return body(*two_levels, choice, device_comm);
        });
  }

  // The shards of both folders have the same bytes.
  void ExpectSameFiles(const std::string& a, const std::string& b, int ranks,
                       const std::vector<std::int64_t>& steps) {
    for (const std::int64_t step : steps) {
      for (int rank = 0; rank < ranks; ++rank) {
        const std::string name =
            StrCat("/", Generation{.epoch = 1, .step = step}.name(), "/", ShardName(rank, ranks));
        EXPECT_EQ(ValueOrThrow(ReadStart(a + name, 1 << 20)),
                  ValueOrThrow(ReadStart(b + name, 1 << 20)))
            << name;
      }
    }
  }

  // 6 blocks of parameters, a part of which is frozen. Fewer updates on GPUs.
  static Job MediumJob(Sharding shard) {
    Job job = SmallJob();
    job.model.layer = {{"fc1", LinearSpec{10, 96, true}},
                       {"relu1", ReluSpec{}},
                       {"fc2", LinearSpec{96, 50, true}},
                       {"relu2", ReluSpec{}},
                       {"fc3", LinearSpec{50, 2, true}}};
    job.optimizer.group = {{.match = "fc1.weight", .freeze = true}};
    job.optimizer.ema = EmaSpec{0.75};
    job.clip_norm = 0.1;
    if (OnGpus()) job.max_updates = 11;
    job.loss_scale = {.init_scale = 1024, .growth_interval = 4};  // of fp16
    job.shard = shard;
    return job;
  }
  // With statistics of whole updates.
  static Job Normalized(Sharding shard, Precision precision = Precision::kF32) {
    Job job = MediumJob(shard);
    job.model.layer.insert(job.model.layer.begin() + 1, {"norm", BatchNormSpec{96}});
    job.precision = precision;
    return job;
  }

  Nodes node_of_;  // empty: one node
  bool two_levels_ = false;
  bool on_cpus_ = false;  // whatever is tested
};

}  // namespace gaccd::tests
