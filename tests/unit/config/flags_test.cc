#include "daemon/config/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/config/arguments.h"
#include "daemon/config/fields.h"
#include "daemon/config/verb.h"
#include "proto/field.pb.h"
#include "proto/flags.pb.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

Environment Variables(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Result<Flags> ParseArguments(std::vector<const char*> args) {
  return ParseFlags(args, Variables({}));
}

Flags ParseOk(const std::vector<const char*>& args) {
  Result<Flags> flags = ParseArguments(args);
  EXPECT_TRUE(flags.ok()) << flags.status().message();
  return flags.ok() ? *flags : Flags{};
}

// The message of the kUsage error that the arguments must give.
std::string UsageError(const std::vector<const char*>& args) {
  const Result<Flags> flags = ParseArguments(args);
  if (flags.ok()) return "no error";
  EXPECT_THAT(flags, HasKind(ErrorKind::kUsage));
  return flags.status().message();
}

// What the flags say last of a field of the job; "": nothing.
std::string TextOfJobField(const Flags& flags, std::string_view path) {
  std::string value;
  for (const auto& field : flags.job_fields) {
    if (field.path == path) value = field.value;
  }
  return value;
}

TEST(FlagsTest, PublishedCommand) {
  const Flags flags = ParseOk({"--nodes", "30", "--target-batch", "3072"});
  EXPECT_EQ(flags.verb, Verb::kPlan);
  EXPECT_EQ(flags.nodes, 30);
  EXPECT_EQ(TextOfJobField(flags, "batch.target"), "3072");
  EXPECT_EQ(flags.gpus_per_node, std::nullopt);
  EXPECT_FALSE(SetsJobField(flags, "batch.micro"));
}

TEST(VerbTableTest, FlagsAndVerbsAreConsistent) {
  for (const VerbRow& row : VerbTable()) {
    EXPECT_EQ(*ParseVerb(row.name), row.verb);
    EXPECT_LT(row.name.size(), 10) << "the column of the overview";
    EXPECT_EQ(FindFlag("format")->IsListedFor(row.verb),
              row.takes.last_format != OutputFormat::kText)
        << row.name;
  }
  for (const FlagRow& row : FlagTable()) {
    std::istringstream words(FieldRule(*row.field).verbs());
    for (std::string word; words >> word;) EXPECT_TRUE(ParseVerb(word).ok()) << row.name << word;
  }
}

struct Arrival {
  std::string flag;
  std::function<void(const Flags&)> check;
};

template <typename Field, typename Value>
Arrival Is(const std::string& flag, Field FlagsSpec::*field, const Value& expected) {
  return {flag, [=](const Flags& flags) { EXPECT_EQ(flags.*field, expected) << flag; }};
}

Arrival Sets(const std::string& flag, const std::string& path, const std::string& value) {
  return {flag, [=](const Flags& flags) { EXPECT_EQ(TextOfJobField(flags, path), value) << flag; }};
}

TEST(FlagsTest, NoArgumentsShowHelp) {
  EXPECT_EQ(ParseOk({}).verb, Verb::kHelp);
  const auto in_a_step = ParseFlags({}, Variables({{"OMPI_COMM_WORLD_SIZE", "2"}}));
  EXPECT_EQ(in_a_step->verb, Verb::kTrain);
}

TEST(FlagsTest, RefusesFlagOfAnotherVerbExceptInFlagFile) {
  const Flags verdict = ParseOk({"verdict", "--attempt-dir=a", "--srun-rc=75"});
  EXPECT_EQ(verdict.attempt_dir, "a");
  EXPECT_EQ(verdict.srun_rc, 75);
  EXPECT_EQ(ParseOk({"ckpt", "export", "x", "--out=o"}).out, "o");
  EXPECT_EQ(UsageError({"selftest", "--keep=3"}), "selftest takes no --keep");
  EXPECT_EQ(UsageError({"ckpt", "ls", "x", "--run-dir=y"}), "ckpt takes no --run-dir");
  EXPECT_EQ(UsageError({"verdict", "--keep=3"}), "verdict takes no --keep");
  EXPECT_EQ(ParseOk({"check", "--job=x", "--run-dir=y", "--micro-batch=auto"}).job, "x");
  for (const char* verb : {"train", "plan"}) {
    EXPECT_EQ(UsageError({verb, "--srun-rc=3"}), StrCat(verb, " takes no --srun-rc"));
  }
  EXPECT_EQ(UsageError({"train", "--epoch=3"}), "train takes no --epoch (did you mean --epochs?)");
  EXPECT_EQ(UsageError({"train", "--run=a"}), "train takes no --run (did you mean --run-dir?)");
  EXPECT_EQ(UsageError({"train", "--ranks=3"}),
            "train takes no --ranks (did you mean --local-ranks?)");
  EXPECT_EQ(ParseOk({"plan", "--job=x", "--keep=3"}).keep, 3) << "as train";
  EXPECT_EQ(ParseOk({"selftest", "--keep=3", "--help"}).verb, Verb::kHelp);
  const TempFolder folder;
  const std::string path = folder.Write("shared.flags", "--nodes=3\n--job=x\n");
  const std::string flag = "--flagfile=" + path;
  EXPECT_EQ(ParseOk({"selftest", flag.c_str()}).nodes, 3);
}

TEST(FlagsTest, RefusesFormatOfAnotherVerb) {
  for (const char* verb : {"check", "selftest", "verdict"}) {
    EXPECT_EQ(ParseOk({verb, "--format=json"}).format, OutputFormat::kJson);
    EXPECT_THAT(UsageError({verb, "--format=txtpb"}), HasSubstr("text or json, found txtpb"));
  }
  EXPECT_EQ(ParseOk({"ckpt", "ls", "x", "--format=json"}).format, OutputFormat::kJson);
  EXPECT_THAT(UsageError({"ckpt", "prune", "x", "--format=json"}), HasSubstr("must be text"));
  EXPECT_THAT(UsageError({"ckpt", "--format=json"}), HasSubstr("must be text"));
  EXPECT_EQ(UsageError({"train", "--format=json"}), "train takes no --format");
  EXPECT_EQ(ParseOk({"export", "x", "--format=otlp-json"}).format, OutputFormat::kOtlpJson);
  EXPECT_EQ(
      UsageError({"export", "x"}),
      "export: --format must be csv, chrome-trace, otlp-json, tensorboard or prometheus, found "
      "text");
  EXPECT_THAT(UsageError({"plan", "--format=csv"}), HasSubstr("text, json or txtpb, found csv"));
}

TEST(FlagsTest, LogsTakesItsFilters) {
  const Flags flags = ParseOk({"logs", "r", "--rank=3", "--host=n1", "--level=error", "--attempt=1",
                               "--follow", "--events"});
  EXPECT_EQ(flags.words, std::vector<std::string>{"r"});
  EXPECT_EQ(flags.rank, 3);
  EXPECT_EQ(flags.host, "n1");
  EXPECT_EQ(flags.level, LogLevel::kError);
  EXPECT_EQ(flags.attempt, "1");
  EXPECT_TRUE(flags.follow && flags.events);
}

TEST(FlagsTest, MicroBatchFromMemory) {
  const Flags flags = ParseOk({"train", "--job=j", "--micro-batch=auto", "--memory=80GB"});
  EXPECT_TRUE(flags.micro_batch_auto);
  EXPECT_EQ(flags.memory, "80GB");
  EXPECT_FALSE(SetsJobField(flags, "batch.micro"));
  EXPECT_TRUE(ParseOk({"submit", "--set", "batch.micro=auto"}).micro_batch_auto);
  // The last one counts.
  const Flags given = ParseOk({"train", "--micro-batch=auto", "--micro-batch=7"});
  EXPECT_FALSE(given.micro_batch_auto);
  EXPECT_EQ(TextOfJobField(given, "batch.micro"), "7");
  EXPECT_FALSE(
      SetsJobField(ParseOk({"train", "--micro-batch=7", "--set=batch.micro=auto"}), "batch.micro"));
  EXPECT_NE(SharedFlagsText(flags), SharedFlagsText(given));
  EXPECT_THAT(UsageError({"train", "--memory=80GB"}), HasSubstr("limit of --micro-batch=auto"));
  EXPECT_THAT(UsageError({"train", "--micro-batch=auto", "--memory=80"}), HasSubstr("its unit"));
  EXPECT_THAT(UsageError({"plan", "--micro-batch=auto"}), HasSubstr("needs --job=FILE"));
  EXPECT_THAT(UsageError({"eval", "--micro-batch=auto"}), HasSubstr("found auto"));
  EXPECT_THAT(UsageError({"train", "--target-batch=auto"}), HasSubstr("must be a whole number"));
  // From a file it is for the verbs that take it.
  const TempFolder folder;
  const std::string file =
      "--flagfile=" + folder.Write("shared.flags", "--micro-batch=auto\n--memory=80GB\n");
  for (const char* verb : {"status", "stop", "check", "version"}) {
    EXPECT_OK(ParseArguments({verb, file.c_str()}).status());
  }
  EXPECT_THAT(UsageError({"eval", file.c_str()}), HasSubstr("found auto"));
  EXPECT_EQ(UsageError({"status", "--micro-batch=auto"}), "status takes no --micro-batch");
}

TEST(FlagsTest, ParsesEveryFlag) {
  const std::vector<Arrival> arrivals = {
      Is("--nodes=2", &Flags::nodes, 2),
      Is("--local-ranks=3", &Flags::local_ranks, 3),
      Is("--speed=n[1-2]:0.5", &Flags::speed, std::string("n[1-2]:0.5")),
      Is("--rebalance=auto", &Flags::rebalance, Rebalance::kAuto),
      Is("--gpus_per_node=4", &Flags::gpus_per_node, 4),
      Sets("--micro-batch=5", "batch.micro", "5"),
      Sets("--target-batch=100", "batch.target", "100"),
      Sets("--rounding=nearest", "batch.rounding", "nearest"),
      Is("--strict", &Flags::strict, true),
      Sets("--lr-rule=sqrt", "batch.lr_rule", "sqrt"),
      Sets("--reference-batch=50", "batch.reference", "50"),
      Sets("--last-cycle=carry", "batch.last_cycle", "carry"),
      Is("--job=a.txtpb", &Flags::job, std::string("a.txtpb")),
      Is("--run-dir=runs/a", &Flags::run_dir, std::string("runs/a")),
      Sets("--epochs=0", "epochs", "0"),
      Sets("--max-updates=7", "max_updates", "7"),
      Sets("--seed=18446744073709551615", "seed", "18446744073709551615"),
      Sets("--log-every=9", "log_every", "9"),
      Sets("--device=cuda", "device", "cuda"),
      Sets("--precision=bf16", "precision", "bf16"),
      Sets("--tf32", "tf32", "true"),
      Sets("--deterministic", "deterministic", "true"),
      Sets("--shard=optimizer", "shard", "optimizer"),
      Sets("--set=optimizer.lr=0.5", "optimizer.lr", "0.5"),
      Is("--allow-gpu-sharing", &Flags::allow_gpu_sharing, true),
      Is("--allow-emulation", &Flags::allow_emulation, true),
      Is("--time-algorithms", &Flags::time_algorithms, true),
      Is("--save-every-updates=11", &Flags::save_every_updates, 11),
      Is("--save-every-seconds=12", &Flags::save_every_seconds, 12),
      Is("--resume=runs/b/ckpt/x", &Flags::resume, std::string("runs/b/ckpt/x")),
      Is("--keep=13", &Flags::keep, 13),
      Is("--keep-every=14", &Flags::keep_every, 14),
      Is("--failed-saves=15", &Flags::failed_saves, 15),
      Is("--group-access", &Flags::group_access, true),
      Is("--stop-signals=USR1,SIGXCPU", &Flags::stop_signals, std::string("USR1,SIGXCPU")),
      Is("--term-budget=16", &Flags::term_budget, 16),
      Is("--on-nonfinite=drop-micro-batch", &Flags::on_nonfinite, OnNonfinite::kDropMicroBatch),
      Is("--on-bad-record=skip", &Flags::on_bad_record, OnBadRecord::kSkip),
      Is("--bad-record-quota=17", &Flags::bad_record_quota, 17),
      Is("--digest-every=18", &Flags::digest_every, 18),
      Is("--heartbeat-seconds=19", &Flags::heartbeat_seconds, 19),
      Is("--init-weights=i", &Flags::init_weights, std::string("i")),
      Is("--new-weights=classifier.*", &Flags::new_weights, std::string("classifier.*")),
      Is("--unused-weights=cls.*,x", &Flags::unused_weights, std::string("cls.*,x")),
      Is("--save-weights=s", &Flags::save_weights, std::string("s")),
      Is("--bound=5", &Flags::bound, 5),
  };
  std::vector<const char*> args = {"train"};
  for (const Arrival& arrival : arrivals) args.push_back(arrival.flag.c_str());
  const Flags flags = ParseOk(args);
  EXPECT_EQ(flags.verb, Verb::kTrain);
  for (const Arrival& arrival : arrivals) arrival.check(flags);
}

TEST(FlagsTest, RefusesQuotaOfRecordsThatAreNotSkipped) {
  for (const char* verb : {"train", "eval", "submit"}) {
    EXPECT_THAT(UsageError({verb, "--bad-record-quota=3"}), HasSubstr("--on-bad-record=skip"))
        << verb;
    EXPECT_EQ(ParseOk({verb, "--bad-record-quota=3", "--on-bad-record=skip"}).bad_record_quota, 3);
  }
}

TEST(FlagsTest, PlansOfLocalRanks) {
  for (const char* verb : {"plan", "samples", "submit"}) {
    EXPECT_EQ(ParseOk({verb, "--local-ranks=3"}).gpus_per_node, 3) << verb;
    EXPECT_EQ(ParseOk({verb, "--local-ranks=3", "--gpus-per-node=2"}).gpus_per_node, 2) << verb;
    EXPECT_FALSE(ParseOk({verb, "--local-ranks=3", "--nodes=2"}).gpus_per_node) << verb;
  }
  EXPECT_FALSE(ParseOk({"train", "--local-ranks=3"}).gpus_per_node);
}

TEST(FlagsTest, SetAcceptsEveryJobFieldByTypeAndRange) {
  const Flags flags = ParseOk({"train", "--set", "optimizer.lr=0.5", "--set=epochs=3", "--set",
                               "model.layer[2].linear.out=7", "--epochs=4"});
  ASSERT_EQ(flags.job_fields.size(), 4U);
  EXPECT_EQ(flags.job_fields[2].path, "model.layer[2].linear.out");
  EXPECT_EQ(TextOfJobField(flags, "epochs"), "4") << "the last one wins";
  const auto error = [](const std::string& set) {
    return UsageError({"train", "--set", set.c_str()});
  };
  EXPECT_EQ(error("optimizer.lr=x"), "--set optimizer.lr=x: must be a number");
  for (const char* far : {"optimizer.lr=1e400", "optimizer.lr=+1e400", "optimizer.lr=1e-400"}) {
    EXPECT_THAT(error(far), HasSubstr(": is too large or too close to 0 for 64 bits")) << far;
  }
  EXPECT_EQ(error("optimizer.lr=1e400x"), "--set optimizer.lr=1e400x: must be a number");
  EXPECT_EQ(error("optimizer.lr=-1"), "--set optimizer.lr=-1: must be above 0");
  EXPECT_EQ(error("optimizer.lr=inf"), "--set optimizer.lr=inf: must be finite");
  EXPECT_EQ(error("batch.rounding=up"),
            "--set batch.rounding=up: must be one of exact, floor, ceil, nearest");
  EXPECT_THAT(error("name=a b"), HasSubstr("may contain letters"));
  EXPECT_THAT(error("lr=1"), HasSubstr("unknown field 'lr' (did you mean optimizer.lr?)"));
  EXPECT_THAT(error("optimizer.clip_norm=1"),
              HasSubstr("(did you mean clip_norm of the job itself?)"));
  EXPECT_EQ(error("data.class_name=a"), "--set data.class_name=a: is set in the job text only");
  EXPECT_EQ(error("data.class_name[0]=a"),
            "--set data.class_name[0]=a: is set in the job text only");
  EXPECT_THAT(error("model.layer[0].linear.ot=3"), HasSubstr("(did you mean out?); Linear has in"));
  EXPECT_THAT(error("model.layer.name=a"), HasSubstr("name an element, layer[0]"));
  EXPECT_THAT(error("model.layer[x].name=a"), HasSubstr("expected layer[N]"));
  EXPECT_THAT(error("epochs[0]=1"), HasSubstr("epochs is not a list"));
  EXPECT_THAT(error("epochs.x=1"), HasSubstr("epochs has no fields"));
  EXPECT_THAT(error("optimizer=1"), HasSubstr("group of fields"));
  EXPECT_THAT(error("epochs"), HasSubstr("expected --set FIELD=VALUE"));
  EXPECT_EQ(UsageError({"status", "--set", "epochs=1"}), "status takes no --set");
}

TEST(FlagsTest, StructDefaultsEqualDescription) {
  EXPECT_EQ(SharedFlagsText({FromProto(proto::Flags())}), SharedFlagsText(Flags{}));
  EXPECT_EQ(Name(OnNonfinite::kDropMicroBatch), "drop-micro-batch");
  EXPECT_EQ(Name(OnBadRecord::kSkip), "skip");
}

TEST(FlagsTest, RefusesUnsupportedSignals) {
  EXPECT_THAT(UsageError({"train", "--stop-signals=TERM,KILL"}),
              AllOf(HasSubstr("--stop-signals=TERM,KILL"), HasSubstr("'KILL'")));
  EXPECT_EQ(ParseOk({"train"}).stop_signals, "USR1,USR2,TERM");
}

TEST(FlagsTest, ParsesIndependently) {
  ParseOk({"--nodes=30", "--strict", "--format=json", "--job=a", "--tf32"});
  const Flags flags = ParseOk({});
  EXPECT_FALSE(flags.save_every_seconds) << "a request for checkpoints differs from the default";
  EXPECT_EQ(flags.nodes, std::nullopt);
  EXPECT_EQ(flags.job, std::nullopt);
  EXPECT_FALSE(flags.strict);
  EXPECT_TRUE(flags.job_fields.empty());
  EXPECT_EQ(flags.format, OutputFormat::kText);
}

TEST(FlagsTest, SpellingsOfOneFlag) {
  for (const char* spelling : {"--gpus-per-node=4", "--gpus_per_node=4", "-gpus-per-node=4"}) {
    EXPECT_EQ(ParseOk({spelling}).gpus_per_node, 4) << spelling;
  }
  EXPECT_EQ(ParseOk({"--nodes=1", "--nodes=2"}).nodes, 2) << "the last one wins";
  EXPECT_FALSE(ParseOk({"--strict", "--nostrict"}).strict);
  EXPECT_FALSE(ParseOk({"--strict=false"}).strict);
  EXPECT_EQ(TextOfJobField(ParseOk({"--notf32"}), "tf32"), "false") << "a request, not a default";
  EXPECT_EQ(TextOfJobField(ParseOk({"--deterministic=false"}), "deterministic"), "false");
  EXPECT_EQ(ParseOk({"--config=a"}).job, "a");
  EXPECT_EQ(ParseOk({"--nodes=3", "--", "plan"}).verb, Verb::kPlan);
}

TEST(FlagsTest, AllVerbs) {
  EXPECT_EQ(ParseOk({"plan"}).verb, Verb::kPlan);
  EXPECT_EQ(ParseOk({"train"}).verb, Verb::kTrain);
  EXPECT_EQ(ParseOk({"selftest"}).verb, Verb::kSelftest);
  EXPECT_EQ(ParseOk({"check"}).verb, Verb::kCheck);
  EXPECT_EQ(ParseOk({"ckpt", "ls", "runs/a"}).verb, Verb::kCkpt);
  EXPECT_EQ(ParseOk({"ckpt", "ls", "--keep=2", "runs/a"}).words,
            (std::vector<std::string>{"ls", "runs/a"}));
  EXPECT_EQ(ParseOk({"version"}).verb, Verb::kVersion);
  EXPECT_EQ(ParseOk({"--version"}).verb, Verb::kVersion);
  EXPECT_EQ(ParseOk({"--nodes=3", "selftest"}).verb, Verb::kSelftest);
  EXPECT_EQ(ParseOk({"help"}).verb, Verb::kHelp);
  EXPECT_EQ(ParseOk({"help"}).help_topic, std::nullopt);
  EXPECT_EQ(ParseOk({"help", "train"}).help_topic, Verb::kTrain);
  EXPECT_EQ(ParseOk({"help", "data", "show"}).help_topic, Verb::kData);
  EXPECT_EQ(ParseOk({"help", "ckpt", "verify"}).help_topic, Verb::kCkpt);
  for (const auto& [verb, word] : {std::pair{"data", "ls"}, {"train", "show"}, {"man", "show"}}) {
    EXPECT_NE(UsageError({"help", verb, word}).find(StrCat("unexpected argument '", word, "'")),
              std::string::npos);
  }
  EXPECT_EQ(ParseOk({"help", "job"}).help_page, HelpPage::kJob);
  EXPECT_EQ(ParseOk({"help", "bash"}).help_page, HelpPage::kBash);
  EXPECT_EQ(ParseOk({"help", "job", "csv"}).words, std::vector<std::string>{"csv"});
  for (const char* help : {"--help", "-h", "-help"}) {
    EXPECT_EQ(ParseOk({help}).verb, Verb::kHelp);
    EXPECT_EQ(ParseOk({help}).help_topic, std::nullopt);
    EXPECT_EQ(ParseOk({"train", help}).help_topic, Verb::kTrain);
  }
}

TEST(FlagsTest, HomeFolderIsNotExpanded) {
  const auto refuse = [](const char* flag) {
    const std::vector<const char*> args = {"train", flag};
    return ParseFlags(args, Variables({})).status();
  };
  for (const char* flag : {"--run-dir=~/a", "--save-weights=~/w", "--init-weights=~/w",
                           "--resume=~/runs/a", "--job=~/j", "--run-dir=~"}) {
    EXPECT_THAT(refuse(flag), IsError(ErrorKind::kUsage, flag, "~ is not expanded")) << flag;
  }
  for (const char* flag : {"--run-dir=./~/a", "--run-dir=a~/b"}) EXPECT_OK(refuse(flag));
}

TEST(FlagsTest, EnvironmentSelectsVerb) {
  const std::map<std::string, std::string> step = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"}};
  EXPECT_EQ(DefaultVerb(Variables({})), Verb::kPlan);
  EXPECT_EQ(DefaultVerb(Variables(step)), Verb::kTrain);
  EXPECT_EQ(DefaultVerb(Variables({{"SLURM_JOB_ID", "8"}, {"SLURM_PROCID", "0"}})), Verb::kPlan)
      << "a batch script is no step";
  EXPECT_EQ(DefaultVerb(Variables({{"SLURM_STEP_ID", "0"}})), Verb::kPlan);
  EXPECT_EQ(DefaultVerb(Variables({{"OMPI_COMM_WORLD_SIZE", "1"}})), Verb::kTrain);

  const std::vector<const char*> no_verb = {"--nodes=2"};
  const std::vector<const char*> plan = {"plan", "--nodes=2"};
  EXPECT_EQ(ParseFlags(no_verb, Variables(step))->verb, Verb::kTrain);
  EXPECT_EQ(ParseFlags(plan, Variables(step))->verb, Verb::kPlan);
}

TEST(FlagsTest, QuotesUnknownFlagsAndVerbsWithSuggestion) {
  EXPECT_EQ(UsageError({"--nodse=3"}), "unknown flag '--nodse=3' (did you mean --nodes?)");
  EXPECT_EQ(UsageError({"--xyzzy"}), "unknown flag '--xyzzy'");
  EXPECT_EQ(UsageError({"--target-batches", "3"}),
            "unknown flag '--target-batches' (did you mean --target-batch?)");
  EXPECT_THAT(UsageError({"--nonodes"}), HasSubstr("unknown flag '--nonodes'"));
  EXPECT_THAT(UsageError({"trian"}), StartsWith("unknown verb 'trian' (did you mean train?)"));
  EXPECT_EQ(UsageError({"--target=3"}), "unknown flag '--target=3' (did you mean --target-batch?)");
  EXPECT_THAT(UsageError({"--save-every=3"}),
              HasSubstr("--save-every-seconds or --save-every-updates?)"));
  EXPECT_THAT(UsageError({"--batch-size=3"}),
              AllOf(HasSubstr("--target-batch"), HasSubstr("--micro-batch")));
  for (const char* steps : {"--gradient-accumulation-steps=2", "--accum_steps=2"}) {
    EXPECT_THAT(UsageError({steps}), HasSubstr("follows from --target-batch")) << steps;
  }
  EXPECT_THAT(UsageError({"--lr", "0.1"}), HasSubstr("--set optimizer.lr="));
  for (const char* far : {"-x", "--momentum", "--zz"}) {
    EXPECT_EQ(UsageError({far}), StrCat("unknown flag '", far, "'"));
  }
  EXPECT_THAT(UsageError({"ckpt", "ls", "a", "b"}), HasSubstr("'b'"));
  EXPECT_EQ(UsageError({"ckpt", "diff", "a", "b"}),
            "ckpt: expected one of: ls verify prune export, found 'diff'");
  EXPECT_EQ(UsageError({"data", "shwo", "--job=a"}), "data: expected one of: show, found 'shwo'");
  EXPECT_THAT(UsageError({"verdict", "runs/a"}),
              HasSubstr("for example --attempt-dir=runs/a/attempts/latest"));
  EXPECT_THAT(UsageError({"--keep=0"}), HasSubstr("must be at least 1"));
  EXPECT_THAT(UsageError({"help", "xyzzy"}),
              StartsWith("unknown verb 'xyzzy'; the verbs are plan"));
  EXPECT_THAT(UsageError({"plan", "3072"}), StartsWith("unexpected argument '3072' after 'plan'"));
  EXPECT_THAT(UsageError({"help", "plan", "train"}), HasSubstr("'train'"));
  // gflags' own flags would read files or end the process.
  for (const char* own : {"--fromenv=x", "--helpfull", "--helpxml", "--undefok=nodes",
                          "--tryfromenv=x", "--tab_completion_word=x"}) {
    EXPECT_THAT(UsageError({own}), StartsWith("unknown flag")) << own;
  }
  EXPECT_THAT(UsageError({"---nodes=3"}), StartsWith("unknown flag"));
  EXPECT_THAT(UsageError({"-"}), HasSubstr("'-'"));
  EXPECT_THAT(UsageError({""}), HasSubstr("''"));
}

TEST(FlagsTest, MissingValues) {
  EXPECT_EQ(UsageError({"--nodes"}), "--nodes needs a value");
  EXPECT_EQ(UsageError({"--nodes", "--strict"}), "--nodes needs a value");
  EXPECT_EQ(UsageError({"--nodes="}), "--nodes needs a value");
  EXPECT_EQ(UsageError({"--job="}), "--job needs a value");
  EXPECT_EQ(UsageError({"--job", ""}), "--job needs a value");
  EXPECT_EQ(UsageError({"--strict="}), "--strict needs a value");
  EXPECT_EQ(UsageError({"--flagfile"}), "--flagfile needs a value");
  EXPECT_EQ(UsageError({"--flagfile="}), "--flagfile needs a value");
}

TEST(FlagsTest, QuotesWrongValues) {
  EXPECT_EQ(UsageError({"--nodes", "-5"}), "--nodes=-5: must be at least 1");
  for (const char* flag :
       {"--nodes=0", "--gpus-per-node=0", "--micro-batch=0", "--target-batch=0", "--log-every=0"}) {
    EXPECT_EQ(UsageError({flag}), StrCat(flag, ": must be at least 1"));
  }
  for (const char* flag : {"--epochs=-1", "--max-updates=-1", "--reference-batch=-1"}) {
    EXPECT_EQ(UsageError({flag}), StrCat(flag, ": must be at least 0"));
  }
  for (const char* value : {"abc", "3x", "3.5", "1e3", "--", "0x", "3 072"}) {
    EXPECT_EQ(UsageError({StrCat("--nodes=", value).c_str()}),
              StrCat("--nodes=", value, ": must be a whole number"));
  }
  EXPECT_EQ(UsageError({"--target-batch=9223372036854775808"}),
            "--target-batch=9223372036854775808: does not fit 64 bits");
  EXPECT_EQ(UsageError({"--nodes=-9223372036854775809"}),
            "--nodes=-9223372036854775809: does not fit 64 bits");
  EXPECT_EQ(TextOfJobField(ParseOk({"--target-batch=9223372036854775807"}), "batch.target"),
            "9223372036854775807");
  EXPECT_THAT(UsageError({"--seed=-1"}), HasSubstr("--seed=-1: must be a whole number from 0"));
  EXPECT_THAT(UsageError({"--seed=18446744073709551616"}), HasSubstr("from 0 to"));
  EXPECT_EQ(UsageError({"--rounding=up"}),
            "--rounding=up: must be one of exact, floor, ceil, nearest");
  EXPECT_EQ(UsageError({"--rounding=Exact"}),
            "--rounding=Exact: must be one of exact, floor, ceil, nearest");
  EXPECT_EQ(UsageError({"--lr-rule=x"}), "--lr-rule=x: must be one of none, linear, sqrt");
  EXPECT_EQ(UsageError({"--last-cycle=x"}), "--last-cycle=x: must be one of update, carry, drop");
  EXPECT_EQ(UsageError({"--device=gpu"}), "--device=gpu: must be one of auto, cpu, cuda");
  EXPECT_EQ(UsageError({"--precision=f16"}),
            "--precision=f16: must be one of f32, bf16, fp16, f64-sums");
  EXPECT_EQ(UsageError({"--tf32=maybe"}), "--tf32=maybe: must be true or false");
  EXPECT_EQ(UsageError({"--format=xml"}),
            "--format=xml: must be one of text, json, txtpb, csv, chrome-trace, otlp-json, "
            "tensorboard, prometheus");
  EXPECT_EQ(UsageError({"--strict=maybe"}), "--strict=maybe: must be true or false");
  EXPECT_THAT(UsageError({"--bound=0"}), HasSubstr("must be from 1 to 86400"));
  EXPECT_THAT(UsageError({"--bound=86401"}), HasSubstr("must be from 1 to 86400"));
}

class FlagFileTest : public ::testing::Test {
 protected:
  // The path of a new file.
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }

  const TempFolder dir_;
  const std::string folder_ = dir_.path();
};

Flags ParseFileOk(const std::string& path) {
  const std::string argument = "--flagfile=" + path;
  return ParseOk({argument.c_str()});
}
std::string FileError(const std::string& path) {
  const std::string argument = "--flagfile=" + path;
  return UsageError({argument.c_str()});
}

TEST_F(FlagFileTest, ReadsFlagsInOrder) {
  const std::string path =
      Write("a.flags", "# a comment\r\n\n  --nodes=30\r\n--target_batch 3072\n--strict");
  const Flags flags = ParseFileOk(path);
  EXPECT_EQ(flags.nodes, 30);
  EXPECT_EQ(TextOfJobField(flags, "batch.target"), "3072");
  EXPECT_TRUE(flags.strict);
  EXPECT_EQ(ParseFileOk(Write("bom.flags", "\xEF\xBB\xBF--nodes=31\n")).nodes, 31);
  const std::string argument = "--flagfile=" + path;
  EXPECT_EQ(ParseOk({"--nodes=1", argument.c_str()}).nodes, 30);
  EXPECT_EQ(ParseOk({argument.c_str(), "--nodes=1"}).nodes, 1);
  EXPECT_EQ(ParseOk({"--flagfile", path.c_str()}).nodes, 30);
}

TEST_F(FlagFileTest, ReadsNestedFiles) {
  const std::string inner = Write("inner", "--nodes=3\n");
  const std::string other = Write("other", "--seed=4\n");
  const std::string outer = Write("outer", "--flagfile=" + inner + "," + other + "\n");
  EXPECT_EQ(ParseFileOk(outer).nodes, 3);
  EXPECT_EQ(TextOfJobField(ParseFileOk(outer), "seed"), "4");
}

TEST_F(FlagFileTest, ReportsEveryMistakeWithLine) {
  const std::string path = folder_ + "/f";
  const auto error = [&](const std::string& text) { return FileError(Write("f", text)); };
  EXPECT_EQ(error("--nodes=1\n--nodse=3\n"),
            path + ":2: unknown flag '--nodse=3' (did you mean --nodes?)");
  EXPECT_EQ(error("--nodes\n"), path + ":1: --nodes needs a value");
  EXPECT_EQ(error("\n\n--nodes=\n"), path + ":3: --nodes needs a value");
  EXPECT_EQ(error("--nodes=0"), path + ":1: --nodes=0: must be at least 1");
  EXPECT_EQ(error("--seed=1\n--rounding=up"),
            path + ":2: --rounding=up: must be one of exact, floor, ceil, nearest");
  EXPECT_EQ(error("nodes=3"), path + ":1: expected --flag=value, found 'nodes=3'");
  EXPECT_EQ(error("--nodes=3 --seed=4"), path + ":1: --nodes=3 --seed=4: must be a whole number");
  EXPECT_EQ(error("--fromenv=nodes"), path + ":1: unknown flag '--fromenv=nodes'");
  EXPECT_EQ(error("--flagfile="), path + ":1: --flagfile needs a value");
}

TEST_F(FlagFileTest, RefusesRecursiveFile) {
  const std::string path = folder_ + "/f";
  EXPECT_THAT(FileError(Write("f", "--flagfile=" + path)),
              AllOf(HasSubstr(":1: --flagfile="), HasSubstr("does it read itself?")));
}

TEST_F(FlagFileTest, RefusesFilesWritableByOthers) {
  const std::string path = Write("f", "--nodes=3\n");
  ASSERT_EQ(::chmod(path.c_str(), 0664), 0);
  EXPECT_EQ(ParseFileOk(path).nodes, 3) << "the user's own group, by many sites' umask";
  ASSERT_EQ(::chmod(path.c_str(), 0646), 0);
  EXPECT_THAT(FileError(path), HasSubstr("every user may write to '" + path));
  if (::geteuid() != 0) return;  // only root can give files away
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  ASSERT_EQ(::chown(path.c_str(), 4711, 4711), 0);
  EXPECT_THAT(FileError(path), HasSubstr("belongs to user 4711"));
}

TEST_F(FlagFileTest, RefusesUnreadableFiles) {
  const auto kind = [](const std::string& path) {
    const std::string argument = "--flagfile=" + path;
    const Result<Flags> flags = ParseArguments({argument.c_str()});
    EXPECT_THAT(flags, HasMessage(HasSubstr("'" + path + "'")));
    return flags.status().kind();
  };
  EXPECT_EQ(kind(folder_ + "/missing"), ErrorKind::kIo);
  EXPECT_EQ(kind(folder_), ErrorKind::kIo);
  EXPECT_EQ(kind("/dev/zero"), ErrorKind::kIo) << "a device is not read, it would not end";
  EXPECT_EQ(kind(Write("large", std::string(kMaxTextBytes + 1, '#'))), ErrorKind::kUsage);
}

}  // namespace
}  // namespace gaccd
