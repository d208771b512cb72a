// Five batch norms over updates that are cut into micro-batches on 1 to 7 ranks, some of them
// without samples, against PyTorch's one big batch in f64: gradients and running statistics after
// every update. golden/train/batch_norm_five.txtpb has the model; golden/make_train.py the values.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/config/job_text.h"
#include "daemon/train/batch_feed.h"
#include "daemon/train/trainer.h"
#include "daemon/train/update.h"
#include "tests/support/engine_runs.h"
#include "tests/support/rank_training.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

constexpr double kSameNorms = 1e-6;

// Of one update: gradients of all parameters in their order, and the buffers after it.
struct NormUpdate {
  std::vector<float> gradient;
  std::vector<float> buffers;
};

std::vector<NormUpdate> ReadUpdates(const std::string& path) {
  std::vector<NormUpdate> updates;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::size_t update = 0;
    words >> key >> update;
    if (key != "gradient" && key != "buffers") continue;
    updates.resize(update);
    auto& values = key == "gradient" ? updates.back().gradient : updates.back().buffers;
    for (float value = 0; words >> value;) values.push_back(value);
  }
  return updates;
}

// As in the file: counters are left out.
NormUpdate Values(const FlatLayout& layout, std::span<const float> gradients,
                  std::span<const float> parameters) {
  NormUpdate values;
  for (const FlatEntry& entry : layout.entries()) {
    if (entry.shape.empty()) continue;
    auto& to = entry.buffer ? values.buffers : values.gradient;
    const auto from = (entry.buffer ? parameters : gradients)
                          .subspan(static_cast<std::size_t>(entry.offset),
                                   static_cast<std::size_t>(entry.elements));
    to.insert(to.end(), from.begin(), from.end());
  }
  return values;
}

// The worst of all updates, on one rank.
Result<double> WorstDistance(Communicator& comm, const Job& job,
                             std::span<const NormUpdate> golden) {
  GACCD_ASSIGN_OR_RETURN(const Plan plan, MakePlan(job, comm.size()));
  GACCD_ASSIGN_OR_RETURN(TrainingInputs inputs, OpenInputs(comm, job, plan));
  BatchFeed& feed = inputs.feed;
  GACCD_ASSIGN_OR_RETURN(auto engine,
                         MakeEngine(comm, inputs.model,
                                    {.replica = {.micro_batches = feed.BatchSizes(),
                                                 .micro_steps_per_update = feed.max_micro_steps(),
                                                 .effective_batch = plan.effective_batch()},
                                     .optimizer = job.optimizer}));
  std::vector<float> parameters(static_cast<std::size_t>(inputs.model.layout().size()));
  std::vector<float> gradients(parameters.size());
  inputs.model.Initialize(job.seed, parameters);
  GACCD_RETURN_IF_ERROR(engine->SetParameters(parameters));
  GACCD_RETURN_IF_ERROR(feed.Start(*engine, 0));
  double worst = 0;
  for (std::size_t u = 0; u < golden.size(); ++u) {
    const auto index = static_cast<std::int64_t>(u);
    GACCD_RETURN_IF_ERROR(RunUpdate(*engine, feed.batches(),
                                    feed.ProgramFor(inputs.schedule.At(index)),
                                    {.update = index, .lr = job.optimizer.lr}));
    GACCD_RETURN_IF_ERROR(engine->PopResult(/*wait=*/true).status());
    GACCD_RETURN_IF_ERROR(engine->GetGradients(gradients));
    GACCD_RETURN_IF_ERROR(engine->GetParameters(parameters));
    const NormUpdate found = Values(inputs.model.layout(), gradients, parameters);
    worst = std::max({worst, Distance(found.gradient, golden[u].gradient),
                      Distance(found.buffers, golden[u].buffers)});
  }
  return worst;
}

class BatchNormWorldsTest : public ::testing::TestWithParam<int> {};

// 53 samples in updates of 12, the last of an epoch of 5: then 6 and 7 ranks have none to spare.
TEST_P(BatchNormWorldsTest, EveryMicroBatchEqualsPyTorchBigBatch) {
  const std::string path = GACCD_GOLDEN_DIR "/train/batch_norm_five";
  const std::vector<NormUpdate> golden = ReadUpdates(path + ".txt");
  ASSERT_EQ(golden.size(), 10U);
  for (const std::int64_t micro : {1, 4, 7, 13}) {
    Job job = ValueOrThrow(LoadJob(path + ".txtpb"));
    job.batch.micro = micro;
    const Status status = RunThreadRanks(GetParam(), {}, [&](Communicator& comm) -> Status {
      GACCD_ASSIGN_OR_RETURN(const double worst, WorstDistance(comm, job, golden));
      EXPECT_LT(worst, kSameNorms) << "micro-batch " << micro << ", rank " << comm.rank();
      return Status::Ok();
    });
    EXPECT_OK(status);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, BatchNormWorldsTest, ::testing::Range(1, 8));

}  // namespace
}  // namespace gaccd::tests
