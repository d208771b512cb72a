#include <gtest/gtest.h>

#include <functional>

#include "daemon/config/job.h"
#include "tests/support/small_regression.h"

namespace gaccd {
namespace {

struct Changes {
  const char* what;
  std::function<void(Job&)> change;
  const char* other_run;
  const char* reported;
};

TEST(JobChangesTest, EveryFieldHasChangeText) {
  const Job was = [] {
    Job job = tests::SmallRegression();
    job.optimizer = {.lr = 0.1, .kind = AdamWSpec{}};
    return job;
  }();
  const Changes cases[] = {
      {"nothing", [](Job&) {}, "", ""},
      {"FREE", [](Job& job) { job.name = "another"; }, "", ""},
      {"FREE", [](Job& job) { job.batch.micro = 3; }, "", ""},
      {"FREE", [](Job& job) { job.batch.recompute = Recompute::kBlocks; }, "", ""},
      {"FREE: every field of a message", [](Job& job) { job.evaluation.patience = 3; }, "", ""},
      {"FREE: a list", [](Job& job) { job.metric.push_back({R2Spec{}}); }, "", ""},
      {"REPORTED", [](Job& job) { job.epochs = 7; }, "", "epochs: 1 -> 7"},
      {"SAME", [](Job& job) { job.seed = 2; }, "seed: 1 -> 2", ""},
      {"SAME: of a message", [](Job& job) { std::get<AdamWSpec>(job.optimizer.kind).beta2 = 0.5; },
       "optimizer.adamw.beta2: 0.999 -> 0.5", ""},
      {"REPORTED in a message that is SAME",
       [](Job& job) { std::get<AdamWSpec>(job.optimizer.kind).epsilon = 0.5; }, "",
       "optimizer.adamw.epsilon: 1e-08 -> 0.5"},
      {"SAME: added", [](Job& job) { job.optimizer.ema = EmaSpec{.decay = 0.5}; },
       "added: optimizer.ema: { decay: 0.5 }", ""},
      {"REPORTED: added", [](Job& job) { job.optimizer.group.push_back({.match = "x"}); }, "",
       "added: optimizer.group[0]: { match: \"x\" }"},
      {"column names that there were none of", [](Job& job) { job.data.column_name = {"a"}; }, "",
       ""},
      {"class names that there were none of", [](Job& job) { job.data.class_name = {"a"}; }, "",
       ""},
      {"both",
       [](Job& job) {
         job.seed = 2;
         job.clip_norm = 1;
         job.optimizer.lr = 0.2;
       },
       "seed: 1 -> 2", "optimizer.lr: 0.1 -> 0.2; clip_norm: 0 -> 1"},
  };
  for (const Changes& test : cases) {
    Job now = was;
    test.change(now);
    const JobChanges changes = CompareJobs(was, now);
    EXPECT_EQ(changes.other_run, test.other_run) << test.what;
    EXPECT_EQ(changes.reported, test.reported) << test.what;
  }
}

// The same graph in another folder is the same model.
TEST(JobChangesTest, GraphIsComparedByDigest) {
  Job was = tests::SmallRegression();
  was.model.layer.clear();
  was.model.architecture = GraphSpec{.path = "/a", .digest = "12"};
  Job now = was;
  std::get<GraphSpec>(now.model.architecture).path = "/b";
  EXPECT_EQ(CompareJobs(was, now).other_run, "");
  std::get<GraphSpec>(now.model.architecture).digest = "13";
  EXPECT_EQ(CompareJobs(was, now).other_run, "model.graph.digest: \"12\" -> \"13\"");
}

}  // namespace
}  // namespace gaccd
