#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/ckpt_command.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/save_task.h"
#include "daemon/checkpoint/saved_weights.h"
#include "daemon/checkpoint/train_state.h"
#include "daemon/weights/safetensors.h"
#include "tests/support/small_run.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

class CkptCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(
        SaveSteps(run_, 2, {.folder = folder_.Path("ckpt"), .keep = {.newest = 9}}, {3, 6, 9})
            .ok());
  }
  void Break(const std::string& generation) const {
    std::filesystem::resize_file(
        StrCat(folder_.Path("ckpt"), "/", generation, "/shard-00001-of-00002.bin"), 100);
  }
  CkptOutput Run(CkptRequest request) const {
    if (request.path.empty()) request.path = folder_.path();
    auto output = RunCkptCommand(request);
    EXPECT_TRUE(output.ok()) << output.status().message();
    return output.ok() ? *output : CkptOutput{};
  }

  TempFolder folder_;
  SmallRun run_;
};

TEST_F(CkptCommandTest, ListsNewestFirstWithState) {
  Break("step-000000000006-e000001");
  std::filesystem::create_directory(folder_.Path("ckpt") + "/step-000000000012-e000001");
  const std::string text = Run({}).text;
  EXPECT_THAT(text, HasSubstr("step-000000000012-e000001                 -"));
  EXPECT_THAT(text, HasSubstr("unfinished"));
  EXPECT_THAT(text, HasSubstr("damaged: "));
  EXPECT_THAT(text, HasSubstr("expected a file of "));
  EXPECT_LT(text.find("step-000000000009"), text.find("step-000000000003"));
  EXPECT_EQ(Run({.path = folder_.Path("ckpt")}).text, text) << "the folder itself works";
}

TEST_F(CkptCommandTest, VerifyNamesDamage) {
  CkptOutput output = Run({.action = CkptAction::kVerify});
  EXPECT_TRUE(output.verdict.ok());
  EXPECT_THAT(output.text, HasSubstr("step-000000000009-e000001: ok"));
  Break("step-000000000009-e000001");
  output = Run({.action = CkptAction::kVerify});
  EXPECT_THAT(output.verdict, IsError(ErrorKind::kData, "1 of 3 checkpoints are damaged"));
  EXPECT_THAT(output.text, HasSubstr("step-000000000009-e000001: damaged: "));
  output = Run({.action = CkptAction::kVerify,
                .path = folder_.Path("ckpt") + "/step-000000000006-e000001/"});
  EXPECT_TRUE(output.verdict.ok());
  EXPECT_THAT(output.text, Not(HasSubstr("step-000000000009")));
}

// After a change back to an older version, which must not continue from an older checkpoint and
// remove the newest ones.
TEST_F(CkptCommandTest, CheckpointsOfAnotherVersionStay) {
  SmallRun newer = run_;
  newer.job += " field_of_the_future: 1";
  ASSERT_TRUE(
      SaveSteps(newer, 2, {.folder = folder_.Path("ckpt"), .keep = {.newest = 9}}, {12}).ok());
  const auto refused = IsError(ErrorKind::kConfig, "the checkpoint was written by test, and gaccd");
  EXPECT_THAT(LoadNewest(*MakeSingle(), folder_.Path("ckpt"), AcceptAll), refused);
  EXPECT_THAT(RunCkptCommand({.action = CkptAction::kExport,
                              .path = folder_.path(),
                              .out = folder_.Path("w.safetensors")}),
              refused);
  EXPECT_THAT(Run({}).text, HasSubstr("Z  unsupported: "));
  const CkptOutput verified = Run({.action = CkptAction::kVerify});
  EXPECT_THAT(verified.text, AllOf(HasSubstr("step-000000000012-e000002: unsupported: "),
                                   HasSubstr("step-000000000009-e000001: ok")));
  EXPECT_THAT(verified.verdict, refused);
  EXPECT_TRUE(
      SaveSteps(run_, 2, {.folder = folder_.Path("ckpt"), .keep = {.newest = 1}}, {10, 11}).ok());
  EXPECT_THAT(Run({}).text,
              AllOf(HasSubstr("step-000000000011-e000003 "),
                    HasSubstr("step-000000000012-e000002 "), Not(HasSubstr("step-000000000010"))));
}

// What a resume refuses, `verify` calls damaged.
TEST_F(CkptCommandTest, VerifyIsAsStrictAsAResume) {
  const auto comm = MakeSingle();
  const auto damaged = [&](const std::string& folder, const std::string& why) {
    const auto found =
        ValueOrThrow(RunCkptCommand({.action = CkptAction::kVerify, .path = folder}));
    EXPECT_THAT(found.verdict, IsError(ErrorKind::kData, "1 of 1"));
    EXPECT_THAT(found.text, AllOf(HasSubstr("000009-e000001: damaged"), HasSubstr(why)));
    const auto loaded = ValueOrThrow(LoadNewest(*comm, folder, AcceptAll));
    EXPECT_FALSE(loaded.state);
    EXPECT_EQ(loaded.damaged, 1);
    EXPECT_THAT(loaded.refused, testing::ElementsAre(HasSubstr(why)));
  };
  for (const std::size_t at : {std::size_t{0}, std::size_t{899}, std::size_t{912 + 9}}) {
    const TempFolder folder;
    SmallRun run;
    run.nan_at = at;
    ASSERT_TRUE(SaveSteps(run, 2, {.folder = folder.Path("ckpt")}, {9}).ok());
    const std::string why = at < 912 ? StrCat("a.weight: value ", at, " is not finite: ")
                                     : StrCat("a.bias: value ", at - 912, " is not finite: ");
    damaged(folder.Path("ckpt"), why);
    const auto exported =
        RunCkptCommand({.action = CkptAction::kExport,
                        .path = folder.Path("ckpt") + "/step-000000000009-e000001",
                        .out = folder.path() + "/w.safetensors"});
    EXPECT_THAT(exported, IsError(ErrorKind::kData, why));
    EXPECT_FALSE(PathExists(folder.path() + "/w.safetensors"));
  }
  {
    const TempFolder folder;
    ASSERT_TRUE(SaveSteps(run_, 2, {.folder = folder.Path("ckpt")}, {9}).ok());
    const std::string manifest = folder.Path("ckpt") + "/step-000000000009-e000001/MANIFEST";
    std::filesystem::remove(manifest);
    std::filesystem::create_directory(manifest);
    damaged(folder.Path("ckpt"), "/MANIFEST");
  }
}

TEST_F(CkptCommandTest, RefusesGenerationOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const std::string mine = folder_.Path("ckpt") + "/step-000000000009-e000001";
  ASSERT_EQ(::chown(mine.c_str(), 4711, static_cast<gid_t>(-1)), 0);
  const CkptOutput output = Run({.action = CkptAction::kVerify, .path = mine});
  EXPECT_THAT(output.text, HasSubstr("belongs to user 4711"));
  const auto loaded = LoadNewest(*MakeSingle(), folder_.Path("ckpt"), AcceptAll);
  ASSERT_TRUE(loaded.ok() && loaded->state);
  EXPECT_EQ(loaded->state->generation.step, 6);
  EXPECT_THAT(loaded->refused, testing::ElementsAre(HasSubstr("belongs to user 4711")));
}

TEST_F(CkptCommandTest, PruneContinuesAfterFailedRemoval) {
  std::filesystem::create_directory(folder_.Path("ckpt") + "/step-000000000006-e000001/mine");
  const CkptRequest request{.action = CkptAction::kPrune, .keep = {.newest = 1}};
  const CkptOutput output = Run(request);
  EXPECT_EQ(output.text, "removed step-000000000003-e000001\n");
  EXPECT_THAT(output.verdict, IsError(ErrorKind::kIo, "1 of 2 checkpoints could not be removed"));
  EXPECT_THAT(output.verdict, IsError(ErrorKind::kIo, "step-000000000006-e000001/mine'"));
}

// One that is removed in part is none: what has a manifest has all its shards.
TEST_F(CkptCommandTest, RemovesManifestFirst) {
  const std::string path = folder_.Path("ckpt") + "/step-000000000003-e000001";
  std::filesystem::create_directory(path + "/0");  // cannot be removed as a file, and is the first
  EXPECT_FALSE(Run({.action = CkptAction::kPrune, .keep = {.newest = 2}}).verdict.ok());
  EXPECT_TRUE(PathExists(path));
  EXPECT_FALSE(PathExists(StrCat(path, "/", kManifestName)));
}

TEST_F(CkptCommandTest, JsonHasOneLinePerCheckpoint) {
  Break("step-000000000006-e000001");
  std::filesystem::create_directory(folder_.Path("ckpt") + "/step-000000000012-e000001");
  const std::string list = Run({.json = true}).text;
  EXPECT_EQ(std::count(list.begin(), list.end(), '\n'), 4);
  EXPECT_THAT(list, HasSubstr("{\"generation\":\"step-000000000009-e000001\",\"step\":9,"
                              "\"micro_step\":0,\"writer_epoch\":1,\"state\":\"complete\","
                              "\"ranks\":2,\"bytes\":"));
  EXPECT_THAT(list, HasSubstr("\"state\":\"damaged\",\"ranks\":2,"));
  EXPECT_THAT(list, HasSubstr("\"state\":\"unfinished\"}\n"));
  const std::string verified = Run({.action = CkptAction::kVerify, .json = true}).text;
  EXPECT_THAT(verified,
              HasSubstr("\"step\":9,\"micro_step\":0,\"writer_epoch\":1,\"state\":\"ok\"}\n"));
  EXPECT_THAT(verified, HasSubstr("\"state\":\"damaged\",\"reason\":\""));
}

TEST_F(CkptCommandTest, PruneAppliesPolicyUnlessRunIsActive) {
  const CkptRequest request{
      .action = CkptAction::kPrune, .path = folder_.path(), .keep = {.newest = 1}};
  {
    const auto lease = WriterLease::Acquire(folder_.Path("ckpt"), MakeOwnerName("55", 0));
    EXPECT_THAT(RunCkptCommand(request), IsError(ErrorKind::kConfig, "job 55"));
  }
  {
    const auto run = FolderOwner::Acquire(folder_.path(), MakeOwnerName("56", 0));
    EXPECT_THAT(RunCkptCommand(request), IsError(ErrorKind::kConfig, "job 56"))
        << "it may be about to resume";
  }
  EXPECT_EQ(Run(request).text,
            "removed step-000000000006-e000001\nremoved step-000000000003-e000001\n");
  EXPECT_EQ(Run(request).text, "nothing to remove\n");
  EXPECT_TRUE(Run({.action = CkptAction::kVerify}).verdict.ok());
}

// A requeued job continues what its earlier attempts saved, since its first epoch.
TEST_F(CkptCommandTest, PruneBetweenAttemptsKeepsProgress) {
  const std::string folder = folder_.Path("ckpt");
  const auto first = ValueOrThrow(WriterLease::Acquire(folder, MakeOwnerName("55", 0))).epoch();
  const CkptRequest request{.action = CkptAction::kPrune, .keep = {.newest = 1}};
  for (int prunes = 0; prunes < 2; ++prunes) EXPECT_OK(Run(request).verdict);
  EXPECT_EQ(ValueOrThrow(WriterLease::Acquire(folder, MakeOwnerName("55", 1))).job_since(), first);
  EXPECT_OK(Run(request).verdict);
  const auto other = ValueOrThrow(WriterLease::Acquire(folder, MakeOwnerName("56", 0)));
  EXPECT_EQ(other.job_since(), other.epoch());
}

// Of updates 3, 6, 9 the evaluation after 6 was the best.
TEST_F(CkptCommandTest, ShowsKeepsAndExportsBest) {
  const CkptRequest export_best{.action = CkptAction::kExport,
                                .path = folder_.path(),
                                .out = folder_.Path("best.safetensors"),
                                .best = true};
  EXPECT_THAT(RunCkptCommand(export_best),
              IsError(ErrorKind::kData, "has no evaluation with a finite value"));
  SmallRun run = run_;
  run.best_step = 6;
  std::filesystem::remove_all(folder_.Path("ckpt"));
  ASSERT_TRUE(SaveSteps(run, 2,
                        {.folder = folder_.Path("ckpt"), .keep = {.newest = 1, .best = true}},
                        {3, 6, 9})
                  .ok());
  EXPECT_FALSE(PathExists(folder_.Path("ckpt") + "/step-000000000003-e000001"));
  EXPECT_THAT(Run({}).text, AllOf(HasSubstr("complete\n"), HasSubstr("the best: loss 0.25\n")));
  EXPECT_THAT(Run({.json = true}).text, HasSubstr(R"("best":true,"best_value":0.25)"));
  EXPECT_EQ(Run({.action = CkptAction::kPrune, .keep = {.newest = 1}}).text, "nothing to remove\n");
  EXPECT_THAT(Run(export_best).text,
              HasSubstr("after 6 updates (step-000000000006-e000001), the best: loss 0.25"));
  CkptRequest one = export_best;
  one.path = folder_.Path("ckpt") + "/step-000000000009-e000001";
  EXPECT_THAT(RunCkptCommand(one), IsError(ErrorKind::kUsage, "--best: expected a run folder"));
  Break("step-000000000006-e000001");
  EXPECT_THAT(RunCkptCommand(export_best), IsError(ErrorKind::kData, "no checkpoint of update 6"));
}

// The run was stopped in the evaluation after update 6: that checkpoint does not know its value.
TEST_F(CkptCommandTest, BestValueIsThatOfNewestManifest) {
  std::filesystem::remove_all(folder_.Path("ckpt"));
  const CheckpointOptions options{.folder = folder_.Path("ckpt")};
  SmallRun run = run_;
  ASSERT_OK(SaveSteps(run, 2, options, {6}));
  run.best_step = 6;
  ASSERT_OK(SaveSteps(run, 2, options, {9}));
  EXPECT_THAT(Run({}).text, HasSubstr("the best: loss 0.25\n"));
  EXPECT_THAT(Run({.json = true}).text, HasSubstr(R"("best":true,"best_value":0.25)"));
  EXPECT_THAT(
      Run({.action = CkptAction::kExport, .out = folder_.Path("best.safetensors"), .best = true})
          .text,
      HasSubstr("after 6 updates (step-000000000006-e000001), the best: loss 0.25"));
}

// The save after update 7, the best one, failed.
TEST_F(CkptCommandTest, KeepsPreviousBestWhileBestIsNotSaved) {
  std::filesystem::remove_all(folder_.Path("ckpt"));
  SmallRun run = run_;
  run.job.replace(run.job.find("data { train"), 12,
                  "evaluation { keep_best: true } "
                  "data { eval { synthetic { samples: 9 features: 1 } } train");
  const auto save = [&](std::int64_t best, std::int64_t step) {
    run.best_step = best;
    ASSERT_OK(SaveSteps(
        run, 2, {.folder = folder_.Path("ckpt"), .keep = {.newest = 1, .best = true}}, {step}));
  };
  save(3, 3);
  save(7, 9);
  save(7, 12);
  EXPECT_THAT(Run({.action = CkptAction::kPrune, .keep = {.newest = 1}}).text,
              "nothing to remove\n");
  EXPECT_THAT(Run({}).text, AllOf(HasSubstr("step-000000000012"), HasSubstr("step-000000000003"),
                                  Not(HasSubstr("step-000000000009"))));
  EXPECT_THAT(RunCkptCommand({.action = CkptAction::kExport,
                              .path = folder_.path(),
                              .out = folder_.Path("w"),
                              .best = true}),
              IsError(ErrorKind::kData, "no checkpoint of update 7"));
  save(15, 15);
  EXPECT_THAT(Run({}).text, AllOf(HasSubstr("the best: "), Not(HasSubstr("step-000000000003"))));
}

// The run removes the oldest ones while they are read.
TEST_F(CkptCommandTest, RemovedCheckpointsAreNotDamaged) {
  const auto place = ValueOrThrow(FindGenerations(folder_.path()));
  ASSERT_OK(SaveSteps(run_, 2, {.folder = folder_.Path("ckpt"), .keep = {.newest = 1}}, {12}));
  EXPECT_EQ(ValueOrThrow(ReadSavedWeights(place, false)).generation.step, 12);
  const SmallRun large{.parameter_bytes = std::size_t{16} << 20};
  ASSERT_OK(SaveSteps(large, 2, {.folder = folder_.Path("ckpt"), .keep = {.newest = 9}},
                      {20, 21, 22, 23, 24, 25}));
  const auto all = ValueOrThrow(ListGenerations(folder_.Path("ckpt")));
  const std::jthread run([&] {
    // Once the newest one is read, the list of all has been made.
    const auto is_read = [newest = StrCat("/", all.front().name(), "/")](const auto& file) {
      std::error_code gone;
      return std::filesystem::read_symlink(file, gone).string().find(newest) != std::string::npos;
    };
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::ranges::none_of(std::filesystem::directory_iterator("/proc/self/fd"), is_read) &&
           std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    for (const Generation& one : all) {
      if (one.step < 22) {
        EXPECT_OK(RemoveGeneration(folder_.Path("ckpt"), one));
      }
    }
  });
  const CkptOutput output = Run({.action = CkptAction::kVerify});
  EXPECT_OK(output.verdict);
  EXPECT_THAT(output.text, HasSubstr("step-000000000012-e000002: removed\n"));
}

// The run was stopped inside update 7: that checkpoint holds the parameters after update 6, too.
TEST_F(CkptCommandTest, ExportsCheckpointAtEndOfBestUpdate) {
  std::filesystem::remove_all(folder_.Path("ckpt"));
  SmallRun run = run_;
  run.best_step = 6;
  const CheckpointOptions options{.folder = folder_.Path("ckpt"), .keep = {.newest = 9}};
  ASSERT_OK(SaveSteps(run, 2, options, {3, 6}));
  ASSERT_OK(RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(auto writer, StartWriter(comm, options, run.Identity(2), Me(), nullptr));
    const Bytes parameters = run.Parameters(6);
    const Bytes optimizer = run.Optimizer(6);
    RunCursor cursor = run.CursorAt(6);
    cursor.micro_step = 2;
    GACCD_RETURN_IF_ERROR(writer->Save(
        cursor,
        std::vector{HostSource("parameters", parameters), HostSource("optimizer", optimizer),
                    HostSource("accumulators", parameters, true)},
        {.samples = 8}));
    return writer->Finish();
  }));
  EXPECT_EQ(Run({.action = CkptAction::kPrune, .keep = {.newest = 1}}).text,
            "removed step-000000000003-e000001\n");
  EXPECT_THAT(
      Run({.action = CkptAction::kExport, .out = folder_.Path("best.safetensors"), .best = true})
          .text,
      HasSubstr("after 6 updates (step-000000000006-e000001)"));
}

TEST_F(CkptCommandTest, PruneKeepsIntactCheckpoints) {
  const std::string shard =
      folder_.Path("ckpt") + "/step-000000000009-e000001/shard-00001-of-00002.bin";
  std::fstream(shard, std::ios::in | std::ios::out).seekp(3000).put('x');
  EXPECT_EQ(Run({.action = CkptAction::kPrune, .keep = {.newest = 1}}).text,
            "removed step-000000000003-e000001\n");
}

TEST_F(CkptCommandTest, ExportsNewestIntactGeneration) {
  const std::string out = folder_.path() + "/w.safetensors";
  Break("step-000000000009-e000001");
  const CkptOutput output = Run({.action = CkptAction::kExport, .out = out});
  EXPECT_THAT(output.text, AllOf(HasSubstr("step-000000000009-e000001: "),
                                 HasSubstr("the parameters after 6 updates")));
  const auto file = ValueOrThrow(ReadSafetensors(out));
  ASSERT_EQ(file.tensors.size(), 2u);
  const Bytes parameters = run_.Parameters(6);
  EXPECT_EQ(file.tensors[1].name, "a.bias");
  EXPECT_EQ(std::memcmp(file.tensors[0].values.data(), parameters.data(), 3600), 0);
  EXPECT_EQ(std::memcmp(file.tensors[1].values.data(), parameters.data() + 4 * 912, 40), 0);
  // A generation that was asked for by name is not replaced by another.
  const auto named = RunCkptCommand({.action = CkptAction::kExport,
                                     .path = folder_.Path("ckpt") + "/step-000000000009-e000001",
                                     .out = out});
  EXPECT_THAT(named, IsError(ErrorKind::kData, "expected"));
}

// Weights do not need the state of the optimiser, so they do not wait for it either.
TEST_F(CkptCommandTest, ReadsWeightsWithoutOptimizerState) {
  std::filesystem::remove_all(folder_.Path("ckpt"));
  ASSERT_TRUE(SaveSteps(run_, 2, {.folder = folder_.Path("ckpt"), .block_bytes = 64}, {3, 6}).ok());
  const std::string shard = folder_.Path("ckpt/step-000000000006-e000001/shard-00001-of-00002.bin");
  const auto size = std::filesystem::file_size(shard);
  std::fstream(shard, std::ios::in | std::ios::out).seekp(static_cast<long>(size) - 100).put('x');
  const CkptRequest request{.action = CkptAction::kExport, .out = folder_.Path("w.safetensors")};
  EXPECT_THAT(Run(request).text, HasSubstr("after 6 updates"));
  EXPECT_FALSE(Run({.action = CkptAction::kVerify}).verdict.ok());
  std::fstream(shard, std::ios::in | std::ios::out).seekp(200).put('x');
  EXPECT_THAT(Run(request).text, HasSubstr("after 3 updates"));
}

// Without the other ranks no older checkpoint is better.
TEST_F(CkptCommandTest, StopsReadingWeightsIfTickFails) {
  int calls = 0;
  Ticks ticks([&] {
    ++calls;
    return Status(ErrorKind::kUnavailable, "gone");
  });
  const auto place = ValueOrThrow(FindGenerations(folder_.path()));
  EXPECT_THAT(ReadSavedWeights(place, false, &ticks), IsError(ErrorKind::kUnavailable, "gone"));
  EXPECT_EQ(calls, 1);
}

// The averages are the last part of what the optimiser keeps, here after the momentum.
TEST_F(CkptCommandTest, ExportsAveragesUnlessRawWeightsAreRequested) {
  CkptRequest request{.action = CkptAction::kExport, .path = folder_.path()};
  request.out = folder_.Path("w.safetensors");
  request.raw_weights = true;
  EXPECT_THAT(RunCkptCommand(request), IsError(ErrorKind::kUsage, "had no optimizer.ema"));
  const auto values_of = [](const Bytes& bytes, std::size_t first, std::size_t count) {
    const std::span<const float> all = AsFloats(bytes);
    return std::vector<float>(all.begin() + first, all.begin() + first + count);
  };
  for (const bool frozen : {false, true}) {
    const std::size_t trainable = frozen ? 16 : 928;
    SmallRun run{.parameter_bytes = std::size_t{4} * 928,
                 .optimizer_bytes = 8 * trainable,
                 .frozen_weight = frozen};
    run.job.replace(run.job.find("sgd {}"), 6, "sgd { momentum: 0.9 } ema { decay: 0.5 }");
    std::filesystem::remove_all(folder_.Path("ckpt"));
    // The averages begin inside the part of rank 1.
    ASSERT_TRUE(SaveSteps(run, 3, {.folder = folder_.Path("ckpt")}, {0, 6}).ok());
    for (const std::int64_t step : {0, 6}) {
      for (const bool raw : {false, true}) {
        request.path =
            StrCat(folder_.Path("ckpt"), "/", Generation{.epoch = 1, .step = step}.name());
        request.raw_weights = raw;
        const bool averaged = step > 0 && !raw;
        EXPECT_THAT(Run(request).text, HasSubstr(averaged ? "the averaged parameters after 6"
                                                          : ": the parameters after "));
        const auto file = ValueOrThrow(ReadSafetensors(request.out));
        const Bytes parameters = run.Parameters(step);
        const Bytes state = run.Optimizer(step);
        EXPECT_EQ(file.tensors[0].values, averaged && !frozen ? values_of(state, trainable, 900)
                                                              : values_of(parameters, 0, 900));
        EXPECT_EQ(file.tensors[1].values, averaged ? values_of(state, 2 * trainable - 16, 10)
                                                   : values_of(parameters, 912, 10));
      }
    }
  }
  request.action = CkptAction::kVerify;
  EXPECT_THAT(RunCkptCommand(request), IsError(ErrorKind::kUsage, "--raw-weights"));
}

TEST_F(CkptCommandTest, ExportsParametersIfEveryUpdateWasSkipped) {
  SmallRun run{.parameter_bytes = std::size_t{4} * 928, .optimizer_bytes = std::size_t{4} * 928};
  run.job.replace(run.job.find("sgd {}"), 6, "sgd {} ema { decay: 0.5 }");
  const CheckpointOptions options{.folder = folder_.Path("skipped/ckpt")};
  const auto comm = MakeSingle();
  auto writer = ValueOrThrow(StartWriter(*comm, options, run.Identity(1), Me(), nullptr));
  RunCursor cursor = run.CursorAt(6);
  cursor.optimizer_updates = 0;  // all six were skipped
  const Bytes parameters = run.Parameters(6);
  const Bytes optimizer(run.optimizer_bytes);
  const std::vector sources = {HostSource("parameters", parameters),
                               HostSource("optimizer", optimizer)};
  ASSERT_OK(writer->Save(cursor, sources));
  ASSERT_OK(writer->Finish());
  const CkptRequest request{.action = CkptAction::kExport,
                            .path = folder_.Path("skipped"),
                            .out = folder_.Path("w.safetensors")};
  EXPECT_THAT(Run(request).text, HasSubstr(": the parameters after 6"));
}

TEST_F(CkptCommandTest, ExportWritesOnlyToWeightsFile) {
  const auto refusal = [&](const std::string& out) {
    const auto output =
        RunCkptCommand({.action = CkptAction::kExport, .path = folder_.path(), .out = out});
    EXPECT_THAT(output, HasKind(ErrorKind::kIo));
    return output.status().message();
  };
  EXPECT_THAT(refusal("/dev/full"), HasSubstr("'/dev/full': expected a regular file"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  const std::string missing = folder_.path() + "/no/w.safetensors";
  EXPECT_THAT(refusal(missing), HasSubstr("'" + missing + "': there is no folder"));
  const std::string job = folder_.path() + "/job.txtpb";
  ASSERT_TRUE(ReplaceFile(job, "name: \"run\"", false).ok());
  EXPECT_THAT(refusal(job), HasSubstr("is not a safetensors file"));
  const std::string link = folder_.path() + "/link";
  std::filesystem::create_symlink("w.safetensors", link);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Run({.action = CkptAction::kExport, .out = link}).verdict.ok());
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_TRUE(ReadSafetensors(folder_.path() + "/w.safetensors").ok());
  }
}

// Everything fits: sizes, digests, CRCs. But parameters are measured by one buffer, and another one
// of 64 bytes bears the name of theirs.
TEST_F(CkptCommandTest, ExportDoesNotReadPastForgedBuffer) {
  auto manifest =
      ValueOrThrow(ReadManifest(folder_.Path("ckpt"), {.epoch = 1, .step = 9, .committed = true}));
  const Generation forged{.epoch = 1, .step = 12};
  manifest.cursor.step = forged.step;
  manifest.buffers = {{"decoy", manifest.buffers[0].bytes}, {"parameters", 64}};
  for (std::int64_t rank = 0; rank < manifest.world(); ++rank) {
    std::vector<Bytes> bytes;
    for (const BufferSpec& buffer : manifest.buffers) {
      bytes.emplace_back(PartRange(buffer, rank, manifest.world()).bytes);
    }
    const std::vector<std::span<const std::byte>> parts(bytes.begin(), bytes.end());
    const auto record =
        WriteRankShard(folder_.Path("ckpt"), forged, MakeShardIdentity(manifest, rank), parts, {});
    ASSERT_TRUE(record.ok()) << record.status().message();
    manifest.shards[static_cast<std::size_t>(rank)] = *record;
  }
  const std::string path = StrCat(folder_.Path("ckpt"), "/", forged.name());
  ASSERT_TRUE(ReplaceFile(StrCat(path, "/", kManifestName), EncodeManifest(manifest), false).ok());
  EXPECT_THAT(
      RunCkptCommand(
          {.action = CkptAction::kExport, .path = path, .out = folder_.path() + "/w.safetensors"}),
      IsError(ErrorKind::kData, "found decoy"));
}

TEST_F(CkptCommandTest, RefusesWrongArguments) {
  EXPECT_THAT(RunCkptCommand({}), IsError(ErrorKind::kUsage, ""));
  EXPECT_THAT(RunCkptCommand({.path = folder_.path() + "/no"}),
              IsError(ErrorKind::kIo, "/no' does not exist"));
  EXPECT_THAT(RunCkptCommand({.path = folder_.Write("file", "")}),
              IsError(ErrorKind::kIo, "/file' is not a folder"));
  EXPECT_THAT(RunCkptCommand({.action = CkptAction::kExport, .path = folder_.path()}),
              IsError(ErrorKind::kUsage, "--out"));
  EXPECT_THAT(RunCkptCommand({.action = CkptAction::kPrune,
                              .path = folder_.Path("ckpt") + "/step-000000000009-e000001"}),
              IsError(ErrorKind::kUsage, "expected a run folder"));
  const TempFolder empty;
  EXPECT_EQ(RunCkptCommand({.path = empty.path()})->text, "no checkpoints\n");
  EXPECT_THAT(RunCkptCommand({.action = CkptAction::kVerify, .path = empty.path()})->verdict,
              HasKind(ErrorKind::kData));
  EXPECT_THAT(RunCkptCommand({.action = CkptAction::kPrune, .path = empty.path()}),
              IsError(ErrorKind::kData, "holds no checkpoint"));
  EXPECT_TRUE(std::filesystem::is_empty(empty.path())) << "another folder than was meant";
}

TEST(MakeCkptRequestTest, ParsesArguments) {
  const auto made =
      ValueOrThrow(MakeCkptRequest(std::vector<std::string>{"export", "p"}, "o", {.newest = 5}));
  EXPECT_EQ(made.action, CkptAction::kExport);
  EXPECT_EQ(made.path, "p");
  EXPECT_EQ(made.out, "o");
  EXPECT_EQ(made.keep.newest, 5);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{}, {"ls"}, {"rm", "p"}}) {
    EXPECT_THAT(MakeCkptRequest(words, "", {}), IsError(ErrorKind::kUsage, "expected"));
  }
}

FlatLayout Layout() {
  FlatLayout layout;
  EXPECT_TRUE(layout.Add("a.weight", {10, 90}).ok());
  EXPECT_TRUE(layout.Add("a.bias", {10}).ok());
  return layout;
}

TEST(RunStateTest, RequiresSameModel) {
  const FlatLayout layout = Layout();
  Manifest manifest{.parameters = ParameterRecords(layout), .buffers = RunBuffers(layout, 1856)};
  EXPECT_TRUE(CheckFits(manifest, layout, 1856).ok());
  EXPECT_THAT(CheckFits(manifest, layout, 0),
              IsError(ErrorKind::kConfig, "optimizer of 7424 bytes"));
  manifest.cursor.micro_step = 1;
  EXPECT_FALSE(CheckFits(manifest, layout, 1856).ok()) << "a partial update without accumulators";
  manifest.buffers.push_back(AccumulatorsBuffer(layout));
  EXPECT_TRUE(CheckFits(manifest, layout, 1856).ok());
  manifest.parameters[1].shape = {11};
  EXPECT_THAT(CheckFits(manifest, layout, 1856),
              IsError(ErrorKind::kConfig,
                      "it has the parameter a.bias [11] at 912, this job has a.bias [10] at 912"));
  manifest.parameters.pop_back();
  EXPECT_THAT(CheckFits(manifest, layout, 1856),
              IsError(ErrorKind::kConfig, "it has the parameter (none"));
}

TEST(RunStateTest, RefusesAnotherOptimizerGroupByName) {
  FlatLayout layout = Layout();
  const Manifest manifest{.parameters = ParameterRecords(layout),
                          .buffers = RunBuffers(layout, 1856)};
  const OptimizerSpec decays{.kind = AdamWSpec{.weight_decay = 0.25}};
  const OptimizerSpec plain{.kind = SgdSpec{}};
  const auto check = [&](const OptimizerSpec& saved, const OptimizerSpec& now) {
    return CheckSameGroups(manifest, layout, saved, now);
  };
  EXPECT_TRUE(check(decays, plain).ok()) << "the optimiser's own decay may change";
  layout.SetGroup(1, kNoDecay, false);
  EXPECT_TRUE(CheckFits(manifest, layout, 1856).ok());
  EXPECT_THAT(check(decays, decays),
              IsError(ErrorKind::kConfig, "optimizer group of 'a.bias': decay -> no_decay"));
  EXPECT_THAT(check(decays, decays),
              IsError(ErrorKind::kConfig, R"(group { match: "a.bias" weight_decay: 0.25 })"));
  EXPECT_TRUE(check(plain, plain).ok()) << "nothing decays";
  layout.SetGroup(1, {.weight_decay = 0.25}, false);
  EXPECT_TRUE(check(decays, decays).ok()) << "said by a group instead";
  const auto by_group = [&](const OptimizerSpec& now) {
    return CheckSameGroups({.parameters = ParameterRecords(layout)}, Layout(), decays, now);
  };
  EXPECT_TRUE(by_group(decays).ok()) << "no longer said by a group";
  EXPECT_THAT(by_group(plain), IsError(ErrorKind::kConfig, "'a.bias'"));
  layout.SetGroup(1, {.lr_factor = 0.5}, false);
  EXPECT_THAT(check(plain, plain),
              IsError(ErrorKind::kConfig, "'a.bias': decay -> decay, lr_factor 0.5"));
  layout.SetGroup(1, {}, true);
  EXPECT_THAT(check(plain, plain), IsError(ErrorKind::kConfig, "'a.bias': decay -> frozen"));
}

}  // namespace
}  // namespace gaccd
