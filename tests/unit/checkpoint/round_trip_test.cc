#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/support/small_run.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tick_counter.h"

namespace gaccd {
namespace {

TEST(RoundTripTest, LoadsOnAnyNumberOfRanks) {
  const SmallRun run;
  for (int saved = 1; saved <= 5; ++saved) {
    const TempFolder folder;
    const Status status =
        SaveSteps(run, saved, {.folder = folder.Path("ckpt"), .block_bytes = 256}, {12});
    ASSERT_TRUE(status.ok()) << status.message();
    for (int loaded = 1; loaded <= 7; ++loaded) {
      const Status ok = RunThreadRanks(loaded, {}, [&](Communicator& comm) -> Status {
        GACCD_ASSIGN_OR_RETURN(const LoadOutcome outcome,
                               LoadNewest(comm, folder.Path("ckpt"), AcceptAll));
        EXPECT_TRUE(outcome.state && run.Matches(*outcome.state)) << saved << " -> " << loaded;
        EXPECT_THAT(outcome.refused, IsEmpty());
        return Status::Ok();
      });
      ASSERT_TRUE(ok.ok()) << ok.message();
    }
  }
}

// The others wait for the rank that reads the only shard.
TEST(RoundTripTest, ReadingRankSendsHeartbeats) {
  const SmallRun run;
  const TempFolder folder;
  ASSERT_OK(SaveSteps(run, 1, {.folder = folder.Path("ckpt")}, {12}));
  std::vector<int> ticks(3);
  ASSERT_OK(RunThreadRanks(3, {}, [&](Communicator& inner) -> Status {
    TickCounter comm(inner);
    GACCD_ASSIGN_OR_RETURN(const LoadOutcome outcome,
                           LoadNewest(comm, folder.Path("ckpt"), AcceptAll));
    EXPECT_TRUE(outcome.state);
    ticks[static_cast<std::size_t>(comm.rank())] = comm.ticks();
    return Status::Ok();
  }));
  EXPECT_THAT(ticks, ElementsAre(0, 0, 1));
}

TEST(RoundTripTest, TinyBuffersLeaveSomeRanksEmpty) {
  const SmallRun run{.parameter_bytes = 4 * 922, .optimizer_bytes = 0};
  const TempFolder folder;
  ASSERT_TRUE(SaveSteps(run, 70, {.folder = folder.Path("ckpt"), .block_bytes = 64}, {1}).ok());
  const auto comm = MakeSingle();
  const auto outcome = LoadNewest(*comm, folder.Path("ckpt"), AcceptAll);
  ASSERT_TRUE(outcome.ok() && outcome->state) << outcome.status().message();
  EXPECT_TRUE(run.Matches(*outcome->state));
}

TEST(RoundTripTest, PartialUpdateKeepsAccumulatorsOfEveryRank) {
  const TempFolder folder;
  const SmallRun run;
  constexpr int kRanks = 3;
  RunCursor cursor = run.CursorAt(5);
  cursor.micro_step = 2;
  const auto accumulators = [](int rank) {
    return Content(4000, 5, 100 + static_cast<std::uint64_t>(rank));
  };
  Status status = RunThreadRanks(kRanks, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(auto writer, StartWriter(comm, {.folder = folder.Path("ckpt")},
                                                    run.Identity(kRanks), Me(), nullptr));
    const Bytes parameters = run.Parameters(5);
    const Bytes optimizer = run.Optimizer(5);
    const Bytes mine = accumulators(comm.rank());
    GACCD_RETURN_IF_ERROR(writer->Save(
        cursor,
        std::vector{HostSource("parameters", parameters), HostSource("optimizer", optimizer),
                    HostSource("accumulators", mine, true)},
        {.samples = 8, .loss_sum = comm.rank() - 2.5}));
    return writer->Finish();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  for (const int ranks : {kRanks, 2}) {
    status = RunThreadRanks(ranks, {}, [&](Communicator& comm) -> Status {
      GACCD_ASSIGN_OR_RETURN(const LoadOutcome outcome,
                             LoadNewest(comm, folder.Path("ckpt"), AcceptAll));
      const LoadedState& state = *outcome.state;
      EXPECT_EQ(state.generation.name(), "step-000000000005-micro-000002-e000001");
      EXPECT_EQ(state.manifest.cursor, cursor);
      EXPECT_EQ(state.manifest.shards[2].partial, (PartialUpdate{8, -0.5}));
      EXPECT_EQ(state.buffers[0], run.Parameters(5));
      // Another number of ranks cannot continue with the sums of these.
      EXPECT_EQ(state.buffers[2], ranks == kRanks ? accumulators(comm.rank()) : Bytes());
      return Status::Ok();
    });
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

TEST(RoundTripTest, EveryStartHasHigherEpochAndOverwritesNothing) {
  const TempFolder folder;
  const SmallRun run;
  ASSERT_TRUE(SaveSteps(run, 2, {.folder = folder.Path("ckpt")}, {4, 8}).ok());
  // Sent back to step 4, the run comes to step 8 again: the same name but for the epoch.
  ASSERT_TRUE(SaveSteps(run, 2, {.folder = folder.Path("ckpt")}, {6, 8}).ok());
  const auto all = ListGenerations(folder.Path("ckpt"));
  std::vector<std::string> names;
  for (const Generation& one : *all) names.push_back(one.name());
  EXPECT_THAT(names, ElementsAre("step-000000000008-e000002", "step-000000000006-e000002",
                                 "step-000000000008-e000001"));
}

// A writer that was killed while it claimed the folder.
TEST(RoundTripTest, TrainingIsThatOfLastCompleteClaim) {
  const TempFolder folder;
  (void)folder.Write(".epoch-000003", "job 9 process 1 on n2\nsince 3\nbegun 2 from never\n");
  for (const char* text : {"", "job 9 pro", "job 9 process 1 on n2\nsince 4\nbegun 2 fr"}) {
    (void)folder.Write(".epoch-000004", text);
    EXPECT_EQ(NewestTraining(folder.path()).since, 2) << text;
  }
}

TEST(RoundTripTest, FoldersArePrivateUnlessRequested) {
  const SmallRun run;
  for (const bool group : {false, true}) {
    const TempFolder folder;
    ASSERT_TRUE(
        SaveSteps(run, 1, {.folder = folder.Path("ckpt"), .group_access = group}, {1}).ok());
    const std::string generation = folder.Path("ckpt") + "/step-000000000001-e000001";
    const auto mode = [](const std::string& path) {
      struct stat info {};
      EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
      return info.st_mode & 0777;
    };
    EXPECT_EQ(mode(folder.Path("ckpt")), group ? 0750u : 0700u);
    EXPECT_EQ(mode(generation), group ? 0750u : 0700u);
    EXPECT_EQ(mode(generation + "/MANIFEST"), group ? 0640u : 0600u);
    EXPECT_EQ(mode(folder.Path("ckpt") + "/LATEST"), group ? 0640u : 0600u);
    EXPECT_EQ(mode(folder.Path("ckpt") + "/.epoch-000001"), group ? 0640u : 0600u);
    EXPECT_EQ(mode(generation + "/shard-00000-of-00001.bin"), group ? 0640u : 0600u);
  }
}

TEST(RoundTripTest, IncompatibleCheckpointEndsSearch) {
  const TempFolder folder;
  ASSERT_TRUE(SaveSteps(SmallRun(), 1, {.folder = folder.Path("ckpt")}, {1, 2}).ok());
  const auto comm = MakeSingle();
  int asked = 0;
  const auto refused = LoadNewest(*comm, folder.Path("ckpt"), [&](const Manifest&, const Job&) {
    ++asked;
    return Status(ErrorKind::kConfig, "another model");
  });
  EXPECT_THAT(refused, HasKind(ErrorKind::kConfig));
  EXPECT_EQ(asked, 1);
  const auto older =
      LoadNewest(*comm, folder.Path("ckpt"), [&](const Manifest& manifest, const Job&) {
        return manifest.cursor.step == 2 ? Status(ErrorKind::kData, "not this one") : Status::Ok();
      });
  ASSERT_TRUE(older.ok() && older->state);
  EXPECT_EQ(older->state->generation.step, 1);
  EXPECT_THAT(older->refused, ElementsAre("step-000000000002-e000001: not this one"));
}

// As on a file server that does not answer for a moment.
TEST(RoundTripTest, ReadsNewestAgainAfterReadError) {
  const TempFolder folder;
  ASSERT_OK(SaveSteps(SmallRun(), 1, {.folder = folder.Path("ckpt")}, {1, 2}));
  const auto comm = MakeSingle();
  int reads = 0;
  const auto outcome =
      ValueOrThrow(LoadNewest(*comm, folder.Path("ckpt"), [&](const Manifest&, const Job&) {
        return ++reads == 1 ? Status(ErrorKind::kIo, "stale file handle") : Status::Ok();
      }));
  ASSERT_TRUE(outcome.state);
  EXPECT_EQ(outcome.state->generation.step, 2);
  EXPECT_THAT(outcome.refused, IsEmpty());
}

TEST(RoundTripTest, StartsFreshWithoutGenerations) {
  const TempFolder folder;
  const auto comm = MakeSingle();
  for (const std::string& path : {folder.path(), folder.path() + "/none"}) {
    const auto outcome = ValueOrThrow(LoadNewest(*comm, path, AcceptAll));
    EXPECT_FALSE(outcome.state);
  }
}

}  // namespace
}  // namespace gaccd
