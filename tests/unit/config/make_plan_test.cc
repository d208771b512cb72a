#include "daemon/config/make_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string_view>

#include "collectives/base/strings.h"
#include "daemon/config/help.h"
#include "daemon/config/plan_proto.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

Flags PublishedFlags() {
  Flags flags;
  flags.nodes = 30;
  flags.job_fields.push_back({"batch.target", "3072"});
  return flags;
}

std::string PlanText(const Flags& flags) {
  const Result<PlanOutput> output = MakePlanOutput(flags);
  EXPECT_TRUE(output.ok()) << output.status().message();
  return output.ok() ? output->text : "";
}

TEST(PlanCommandTest, MarksDefaults) {
  const std::string text = PlanText(PublishedFlags());
  EXPECT_THAT(text, HasSubstr("x 8 ranks (default)"));
  EXPECT_THAT(text, HasSubstr("10 (default)"));
  EXPECT_THAT(text, HasSubstr("exact (default)"));
  Flags flags = PublishedFlags();
  flags.gpus_per_node = 8;
  flags.job_fields.push_back({"batch.micro", "10"});
  flags.job_fields.push_back({"batch.rounding", "exact"});
  flags.job_fields.push_back({"batch.lr_rule", "none"});
  EXPECT_THAT(PlanText(flags), Not(HasSubstr("default")));
}

TEST(PlanCommandTest, JsonIsOneFlatLine) {
  Flags flags = PublishedFlags();
  flags.format = OutputFormat::kJson;
  EXPECT_EQ(PlanText(flags),
            R"({"mode":"exact","nodes":30,"gpus_per_node":8,"world":240,"micro_batch":10,)"
            R"("base_batch":2400,"target_batch":3072,"effective_batch":3072,"ratio":1.28,)"
            R"("error_ratio":0,"accum_steps":2,"ranks_hi":192,"ranks_hi_samples":13,)"
            R"("ranks_lo":48,"ranks_lo_samples":12,"balance_ratio":0.9846153846153847,)"
            R"("lr_factor":1})"
            "\n");
}

TEST(PlanCommandTest, TextProto) {
  Flags flags = PublishedFlags();
  flags.format = OutputFormat::kTxtpb;
  EXPECT_THAT(PlanText(flags),
              StartsWith("# proto-file: proto/plan.proto\n"
                         "# proto-message: gaccd.proto.Plan\n\nmode: \"exact\"\n"));
}

TEST(PlanCommandTest, StrictPrintsAndRefusesInexactPlan) {
  Flags flags = PublishedFlags();
  flags.strict = true;
  EXPECT_TRUE(MakePlanOutput(flags)->verdict.ok());
  flags.job_fields.push_back({"batch.rounding", "ceil"});
  const auto output = ValueOrThrow(MakePlanOutput(flags));
  EXPECT_THAT(output.text, HasSubstr("4800"));
  EXPECT_THAT(output.verdict, IsError(ErrorKind::kConfig, "4800 for the target 3072"));
  flags.job_fields.push_back({"batch.target", "4800"});  // ceil happens to be exact
  EXPECT_TRUE(MakePlanOutput(flags)->verdict.ok());
}

TEST(PlanCommandTest, FlagsOverrideJobBatch) {
  const TempFolder dir;
  const std::string path = dir.path() + "/job.txtpb";
  std::ofstream(path) << R"(
    name: "line" model { layer { name: "fc" linear { in: 10 out: 1 } } loss { mean_squared_error {} } }
    data { train { synthetic { samples: 4096 } } } optimizer { lr: 0.1 sgd {} }
    batch { target: 500 micro: 64 rounding: CEIL })";
  Flags flags;
  flags.nodes = 1;
  flags.gpus_per_node = 4;
  flags.job = path;
  EXPECT_THAT(PlanText(flags), HasSubstr("500 (job) samples"));
  EXPECT_THAT(PlanText(flags), HasSubstr("64 (job)"));
  EXPECT_THAT(PlanText(flags), HasSubstr("ceil (job)"));
  EXPECT_THAT(PlanText(flags), HasSubstr("rule none (default)")) << "the job does not say it";
  EXPECT_THAT(PlanText(flags), HasSubstr("samples        512 per update"));
  flags.job_fields.push_back({"batch.rounding", "exact"});
  flags.job_fields.push_back({"batch.micro", "32"});
  EXPECT_THAT(PlanText(flags), HasSubstr("samples        500 per update"));
  EXPECT_THAT(PlanText(flags), HasSubstr("micro-batch    32, the most"));
  flags.job = path + ".missing";
  EXPECT_THAT(MakePlanOutput(flags), HasKind(ErrorKind::kIo));
}

TEST(PlanCommandTest, CallsRanksGpusOnlyIfKnown) {
  Flags flags = PublishedFlags();
  flags.job_fields.push_back(
      {"batch.target", "3071"});  // no node count divides it: the last line names the ranks too
  for (const char* device : {"auto", "cpu"}) {
    flags.job_fields.push_back({"device", device});
    EXPECT_THAT(PlanText(flags), HasSubstr("3071 is not a multiple of 8 ranks per node."));
    EXPECT_THAT(PlanText(flags), Not(HasSubstr("GPU")));
  }
  flags.job_fields.push_back({"device", "cuda"});
  EXPECT_THAT(PlanText(flags), HasSubstr("30 nodes x 8 GPUs (default)"));
  EXPECT_THAT(PlanText(flags), HasSubstr("not a multiple of 8 GPUs per node."));
}

TEST(PlanCommandTest, RefusesGpuNumericsOnCpusWithoutJob) {
  Flags flags = PublishedFlags();
  flags.job_fields.push_back({"device", "cpu"});
  EXPECT_TRUE(MakePlanOutput(flags).ok());
  flags.job_fields.push_back({"tf32", "true"});
  EXPECT_THAT(MakePlanOutput(flags), HasKind(ErrorKind::kConfig));
}

TEST(PlanCommandTest, RequiresTarget) {
  EXPECT_THAT(MakePlanOutput(Flags{}), HasKind(ErrorKind::kUsage));
}

TEST(HelpTest, ExplainsEveryVerb) {
  for (const Verb verb :
       {Verb::kPlan, Verb::kTrain, Verb::kSelftest, Verb::kCheck, Verb::kCkpt, Verb::kVersion}) {
    EXPECT_THAT(HelpText(HelpPage::kVerb, verb), StartsWith("gaccd " + std::string(Name(verb))));
    EXPECT_THAT(HelpText(HelpPage::kVerb, std::nullopt), HasSubstr(Name(verb)));
  }
  EXPECT_THAT(HelpText(HelpPage::kJob, {}),
              HasSubstr("\n  optimizer.lr          number above 0; required;"));
  EXPECT_THAT(VersionText({{"MPI", "4.1.4"}}), HasSubstr("\nMPI          4.1.4\n"));
  EXPECT_GE(BuildId().size(), 16U);
}

TEST(HelpTest, ShowsRequestedJobFieldsOnly) {
  const auto csv = ValueOrThrow(JobFieldHelp("csv"));
  EXPECT_THAT(csv, AllOf(HasSubstr("  data.train.csv.path"), HasSubstr("  data.eval.csv.classes"),
                         Not(HasSubstr("npy"))));
  EXPECT_THAT(*JobFieldHelp("layer[3].linear"),
              AllOf(HasSubstr("  model.layer[0].linear.in"), Not(HasSubstr("embedding"))));
  EXPECT_THAT(*JobFieldHelp("optimizer.lr"),
              AllOf(HasSubstr("  optimizer.lr "), Not(HasSubstr("lr_decay"))));
  EXPECT_THAT(*JobFieldHelp("warm"), HasSubstr("schedule.warmup_updates"));
  EXPECT_THAT(JobFieldHelp("csb"), HasKind(ErrorKind::kUsage));
  EXPECT_THAT(JobFieldHelp("csb"), HasMessage(HasSubstr("csv")));
}

TEST(PlanCommandTest, MicroBatchFromMemory) {
  Flags flags = PublishedFlags();
  flags.micro_batch_auto = true;
  // Nobody chooses: all samples of a rank at once.
  EXPECT_THAT(PlanText(flags), HasSubstr("  micro-batch    13 (auto), the most"));
  const PlanChooser choose = [](const Job&, const Plan& whole) -> Result<Plan> {
    EXPECT_EQ(whole.accum_steps(), 1);
    PlanRequest request = whole.request();
    request.micro_batch = 7;
    GACCD_ASSIGN_OR_RETURN(Plan plan, Plan::Make(request));
    plan.set_memory({.bytes = 90, .limit = 100});
    return plan;
  };
  flags.format = OutputFormat::kJson;
  const auto output = ValueOrThrow(MakePlanOutput(flags, choose));
  EXPECT_EQ(output.job.batch.micro, 7);
  EXPECT_THAT(output.text, AllOf(HasSubstr(R"("micro_batch":7,)"), HasSubstr(R"("accum_steps":2,)"),
                                 HasSubstr(R"("memory_bytes":90,"memory_limit_bytes":100})")));
  flags.job_fields.push_back({"batch.rounding", "ceil"});
  EXPECT_THAT(MakePlanOutput(flags, choose), IsError(ErrorKind::kConfig, "--rounding=exact"));
}

TEST(PlanCommandTest, RefusesFlagsIncompatibleWithPipeline) {
  Flags pipeline = PublishedFlags();
  pipeline.job_fields.push_back({"pipeline.stages", "2"});
  EXPECT_OK(MakePlanOutput(pipeline).status());
  Flags flags = pipeline;
  flags.speed = "measured";
  EXPECT_THAT(MakePlanOutput(flags), IsError(ErrorKind::kConfig, "found --speed=measured"));
  flags = pipeline;
  flags.rebalance = Rebalance::kAuto;
  EXPECT_THAT(MakePlanOutput(flags), IsError(ErrorKind::kConfig, "found --rebalance=auto"));
  flags = pipeline;
  flags.on_nonfinite = OnNonfinite::kDropMicroBatch;
  EXPECT_THAT(MakePlanOutput(flags), IsError(ErrorKind::kConfig, "found drop-micro-batch"));
}

TEST(PlanCommandTest, RuleWithoutReferenceUsesTarget) {
  Flags flags = PublishedFlags();
  flags.job_fields.push_back({"batch.lr_rule", "linear"});
  EXPECT_THAT(MakePlanOutput(flags)->text, HasSubstr("--reference-batch=N"));
  flags.job_fields.push_back({"batch.reference", "256"});
  EXPECT_THAT(MakePlanOutput(flags)->text, Not(HasSubstr("--reference-batch=N")));
}

TEST(PlanCommandTest, WarnsOfReferenceWithoutRule) {
  const Plan plan = ValueOrThrow(Plan::Make({.micro_batch = 8, .target_batch = 64}));
  BatchSpec batch{.target = 64, .micro = 8, .reference = 256};
  EXPECT_THAT(BatchWarnings(batch, plan),
              ElementsAre(HasSubstr("--reference-batch=256 is ignored")));
  batch.lr_rule = LrRule::kSqrt;
  EXPECT_THAT(BatchWarnings(batch, plan), IsEmpty());
  batch.lr_rule = LrRule::kNone;
  batch.reference = 64;  // as Plan.flags of Python has it
  EXPECT_THAT(BatchWarnings(batch, plan), IsEmpty());
}

TEST(PlanCommandTest, StrictRefusesInexactStage) {
  BatchSpec batch;
  batch.target_schedule =
      TargetScheduleSpec{.stage = {{.at_update = 0, .at_samples = {}, .target = 64},
                                   {.at_update = 5, .at_samples = {}, .target = 100}}};
  const Plan first = ValueOrThrow(
      Plan::Make({.micro_batch = 8, .target_batch = 64, .rounding = Rounding::kFloor}));
  EXPECT_THAT(RequireExact(batch, first), IsError(ErrorKind::kConfig, "64 for the target 100"));
  batch.target_schedule->stage.back().target = 128;
  EXPECT_OK(RequireExact(batch, first));
}

TEST(PlanCommandTest, EveryTargetScheduleStageHasPlan) {
  const TempFolder folder;
  Flags flags;
  flags.nodes = 30;
  flags.job = folder.path() + "/job.txtpb";
  std::ofstream(*flags.job) << R"(
      name: "stages" model { mlp { widths: [4, 2] } loss { mean_squared_error {} } }
      data { train { synthetic { samples: 9000 features: 4 outputs: 2 } } }
      batch { target_schedule { stage { at_update: 0 target: 768 }
                                stage { at_samples: 5000 target: 3072 } } lr_rule: SQRT }
      optimizer { lr: 0.1 sgd {} } epochs: 1)";
  EXPECT_THAT(
      PlanText(flags),
      AllOf(
          HasSubstr("0 updates           768       768       1         1         48x4,192x3\n"),
          HasSubstr("5000 samples        3072      3072      2         2         192x13,48x12\n")));
  flags.format = OutputFormat::kJson;
  const std::string json = PlanText(flags);
  EXPECT_EQ(std::ranges::count(json, '\n'), 2);
  EXPECT_THAT(json, AllOf(HasSubstr(R"("lr_factor":1,"stage":1,"at_update":0})"),
                          HasSubstr(R"("lr_factor":2,"stage":2,"at_samples":5000})")));
  flags.ranks = true;
  EXPECT_EQ(std::ranges::count(PlanText(flags), '\n'), 2 + 2 * 240);
  flags.ranks = false;
  // The largest update decides the memory; the plan printed is that of the first.
  flags.micro_batch_auto = true;
  const auto all = [](const Job&, const Plan& whole) -> Result<Plan> {
    EXPECT_EQ(whole.effective_batch(), 3072);
    Plan chosen = whole;
    chosen.set_memory({.bytes = 90, .limit = 100});
    return chosen;
  };
  const auto chosen = ValueOrThrow(MakePlanOutput(flags, all));
  EXPECT_EQ(chosen.plan.effective_batch(), 768);
  constexpr std::string_view kMemory = R"("memory_bytes":90,"memory_limit_bytes":100)";
  EXPECT_THAT(chosen.text, HasSubstr(StrCat(kMemory, R"(,"stage":1,)")));
  EXPECT_THAT(chosen.text, HasSubstr(StrCat(kMemory, R"(,"stage":2,)")));
  flags.job_fields.push_back({"batch.target", "64"});
  EXPECT_THAT(MakePlanOutput(flags), IsError(ErrorKind::kConfig, "target and target_schedule"));
}

}  // namespace
}  // namespace gaccd
