#include "daemon/submit/sbatch_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

SbatchScript SmallScript() {
  return {.plan = "2 nodes x 3 = 6 ranks",
          .job_name = "r50",
          .nodes = 2,
          .ranks_per_node = 3,
          .lead_s = 300,
          .lead_reason = "why.",
          .folder = "/data/runs/r50",
          .work_folder = "/home/u",
          .variables = {{"GACCD", "/opt/gaccd"}},
          .train_arguments = {"--nodes=2", "--set", "name=a b"}};
}

TEST(SbatchScript, EqualsRequest) {
  EXPECT_EQ(Render(SmallScript()), R"(#!/bin/bash
# Written by gaccd submit: 2 nodes x 3 = 6 ranks
# To run it again: sbatch this file. Flags after it go to the training and override those below.
#SBATCH --job-name=r50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=3
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=/data/runs/r50/slurm-%j.out
# why.
#SBATCH --signal=USR2@300

export GACCD=/opt/gaccd
export GACCD_RUN_DIR=/data/runs/r50
cd -- /home/u || exit 74
exec bash /data/runs/r50/submit.launch /data/runs/r50/submit.txtpb --nodes=2 --set 'name=a b' "$@"
)");
}

TEST(SbatchScript, HasOneLinePerFlag) {
  SbatchScript script = SmallScript();
  script.gpus = true;
  script.time = "1-00:00:00";
  script.partition = "long,short";
  script.account = "vision lab";
  script.exclude = "n1,n2";
  script.more_flags = {"--mem=0", "--comment=it's $(mine) #1"};
  const std::string text = Render(script);
  for (const char* line :
       {"\n#SBATCH --gpus-per-node=3\n", "\n#SBATCH --distribution=block:block\n",
        "\n#SBATCH --time=1-00:00:00\n", "\n#SBATCH --partition=long,short\n",
        "\n#SBATCH --account=\"vision lab\"\n", "\n#SBATCH --exclude=n1,n2\n",
        "\n#SBATCH --mem=0 \"--comment=it's $(mine) #1\"\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  script.lead_s = 0;
  EXPECT_THAT(Render(script), Not(HasSubstr("--signal")));
}

TEST(SbatchScript, EscapesPercentSigns) {
  SbatchScript script = SmallScript();
  script.folder = "/data/100%j";
  EXPECT_THAT(Render(script), HasSubstr("--output=/data/100%%j/slurm-%j.out\n"));
  EXPECT_THAT(Render(script), HasSubstr("GACCD_RUN_DIR=/data/100%j\n"));
}

TEST(SbatchScript, ArrayTaskSelectsItsRun) {
  SbatchScript script = SmallScript();
  const auto tasks = ValueOrThrow(MakeSweep({{"optimizer.lr", {"0.1", "0.01"}}}));
  script.tasks = tasks;
  const std::string text = Render(script);
  for (const char* part :
       {"#SBATCH --array=0-1\n", "/slurm-%A_%a.out\n",
        "  1) run=1-optimizer.lr=0.01 values=(--set optimizer.lr=0.01) ;;\n",
        "export GACCD_RUN_DIR=/data/runs/r50/$run\n", "'name=a b' \"${values[@]}\" \"$@\"\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(SbatchScript, VariablesDoNotOverrideQuotedFlags) {
  SbatchScript script = SmallScript();
  const auto own = OverridingVariables(script);
  script.more_flags = {"--constraint=a100&ib", "-p", "long short", "--comment=a --reservation=b",
                       "-Jx y"};
  auto more = OverridingVariables(script);
  more.erase(more.begin(), more.begin() + std::ssize(own));
  EXPECT_THAT(more, ElementsAre("SBATCH_CONSTRAINT", "SBATCH_PARTITION", "SBATCH_COMMENT",
                                "SBATCH_JOB_NAME"));
}

// What the parser of sbatch (22.05) makes of it: quotes group, a backslash takes the next
// character, and it looks for the names of components in the unexpanded line.
TEST(SbatchWord, IsOneDirectiveWord) {
  const std::pair<const char*, const char*> cases[] = {{"24:00:00", "24:00:00"},
                                                       {"/a/100%%j", "/a/100%%j"},
                                                       {"\xC3\xA4", "\xC3\xA4"},
                                                       {"a b", R"("a b")"},
                                                       {"#1", R"("#1")"},
                                                       {"it's $(x) `y`", R"("it's $(x) `y`")"},
                                                       {R"(a"\b)", R"("a\"\\b")"},
                                                       {":", R"(":")"},
                                                       {"/a/hetjob", R"(/a/het\job)"},
                                                       {"a PackJob", R"("a Pack\Job")"}};
  for (const auto& [text, word] : cases) EXPECT_EQ(SbatchWord(text), word);
}

TEST(SafeJobName, HasOnlySafeCharacters) {
  EXPECT_EQ(SafeJobName("r50 v1.0_b-$(x)\n"), "r50_v1.0_b-__x__");
}

TEST(CheckRunFolder, RefusesFolderThatSlurmCannotWrite) {
  for (const char* path : {"/a\nb", "/a\x7f", "/a\\b", "/100%%", "/a%1b", "/a/%0"}) {
    EXPECT_THAT(CheckRunFolder(path), HasKind(ErrorKind::kUsage)) << path;
  }
  for (const char* path : {"/a b", "/100%", "/%j", "/'\"$(x)`#;&", "/\xC3\xA4"}) {
    EXPECT_TRUE(CheckRunFolder(path).ok()) << path;
  }
}

TEST(Sweep, HasFolderForEveryCombination) {
  const auto tasks =
      ValueOrThrow(MakeSweep({{"optimizer.lr", {"0.1", "0.01"}}, {"seed", {"1", "2", "3"}}}));
  ASSERT_EQ(tasks.size(), 6);
  EXPECT_EQ(tasks[0].folder, "0-optimizer.lr=0.1+seed=1");
  EXPECT_EQ(tasks[4].folder, "4-optimizer.lr=0.01+seed=2");
  EXPECT_THAT(tasks[4].train_arguments,
              ElementsAre("--set", "optimizer.lr=0.01", "--set", "seed=2"));
  EXPECT_EQ(tasks[4].job_fields[1].value, "2");
}

TEST(Sweep, FolderNamesSortAndAreSafe) {
  std::vector<std::string> values;
  for (int i = 0; i < 11; ++i) values.push_back(std::string(200, 'x') + std::to_string(i));
  values[3] = "a/../b c$(d)";
  const auto tasks = ValueOrThrow(MakeSweep({{"name", values}}));
  EXPECT_EQ(tasks[3].folder, "03-name=a_.._b_c__d_");
  EXPECT_EQ(tasks[10].folder.size(), 120);
  EXPECT_EQ(tasks[10].folder.substr(0, 8), "10-name=");
}

TEST(Sweep, ValuesDiffer) {
  EXPECT_THAT(MakeSweep({{"seed", {"1", "2", "1"}}}),
              HasMessage(HasSubstr("different values of seed, found 1 twice")));
}

TEST(Sweep, IsBounded) {
  std::vector<std::string> many;
  for (int i = 0; i < 100; ++i) many.push_back(std::to_string(i));
  EXPECT_THAT(MakeSweep({{"seed", many}, {"epochs", many}}), HasKind(ErrorKind::kUsage));
  EXPECT_EQ(MakeSweep({})->size(), 0);
}

}  // namespace
}  // namespace gaccd
