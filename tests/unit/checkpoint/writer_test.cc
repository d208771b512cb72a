#include <gmock/gmock.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/save_task.h"
#include "daemon/checkpoint/shard.h"
#include "tests/support/small_run.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  const auto all = ValueOrThrow(ListGenerations(folder));
  for (const Generation& one : all) {
    names.push_back(StrCat(one.committed ? "" : "unfinished ", one.name()));
  }
  return names;
}

// A file under the name of a shard, which the helper does not overwrite, and one that a writer left
// when it was killed.
void Sabotage(const std::string& folder, std::int64_t step, int rank, int world) {
  const std::string generation = StrCat(folder, "/", Generation{.epoch = 1, .step = step}.name());
  EXPECT_TRUE(MakeFolders(generation, 0700).ok());
  const std::string shard = StrCat(generation, "/", ShardName(rank, world));
  for (const char* end : {"", ".tmp-1-2-3"}) EXPECT_TRUE(CreateFileOnce(shard + end, "x").ok());
}

TEST(WriterTest, CommitsAtLaterBoundary) {
  const TempFolder folder;
  const SmallRun run;
  const Status status = RunThreadRanks(3, {}, [&](Communicator& comm) -> Status {
    std::vector<SaveEvent> events;
    GACCD_ASSIGN_OR_RETURN(auto writer,
                           StartWriter(comm, {.folder = folder.Path("ckpt")}, run.Identity(3), Me(),
                                       [&](const SaveEvent& event) { events.push_back(event); }));
    EXPECT_EQ(writer->staging_bytes(),
              2 * PayloadBytes(run.Identity(3).buffers, comm.rank(), comm.size()));
    EXPECT_FALSE(writer->pending());
    GACCD_RETURN_IF_ERROR(writer->Poll());
    GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, 4));
    EXPECT_TRUE(writer->pending());
    int boundaries = 0;
    while (writer->pending()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      GACCD_RETURN_IF_ERROR(writer->Poll());
      ++boundaries;
    }
    EXPECT_GE(boundaries, 2) << "written, then committed; stall_test: without waiting for the disk";
    EXPECT_EQ(events.size(), 1u);
    EXPECT_TRUE(events[0].status.ok());
    EXPECT_EQ(events[0].generation.step, 4);
    GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, 4));
    EXPECT_FALSE(writer->pending()) << "the same boundary is not saved twice";
    return Status::Ok();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(Names(folder.Path("ckpt")), ElementsAre("step-000000000004-e000001"));
  EXPECT_EQ(*ReadStart(folder.Path("ckpt") + "/LATEST", 99), "step-000000000004-e000001\n");
}

TEST(WriterTest, DoesNotCommitDifferentUpdates) {
  const TempFolder folder;
  const SmallRun run;
  std::atomic<int> refused{0};
  (void)RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(auto writer, StartWriter(comm, {.folder = folder.Path("ckpt")},
                                                    run.Identity(2), Me(), nullptr));
    GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, 4 + comm.rank()));
    const std::string shard =
        StrCat(Generation{.epoch = 1, .step = 4 + comm.rank()}.PathIn(folder.Path("ckpt")), "/",
               ShardName(comm.rank(), 2));
    for (int i = 0; i < 20'000 && !PathExists(shard); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_THAT(writer->Finish(), IsError(ErrorKind::kInternal,
                                          StrCat("expected all ranks to save step ",
                                                 4 + comm.rank(), ", found ", 5 - comm.rank())));
    ++refused;
    return comm.Barrier();
  });
  EXPECT_EQ(refused, 2);
  EXPECT_THAT(Names(folder.Path("ckpt")), ElementsAre("unfinished step-000000000005-e000001",
                                                      "unfinished step-000000000004-e000001"));
}

TEST(WriterTest, ConsecutiveSavesCommitAndPruningKeepsNewest) {
  const TempFolder folder;
  const SmallRun run;
  const Status status = RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(
        auto writer,
        StartWriter(comm, {.folder = folder.Path("ckpt"), .keep = {.newest = 2, .every = 10}},
                    run.Identity(2), Me(), nullptr));
    for (std::int64_t step = 1; step <= 25; ++step) {
      GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, step));  // waits for the oldest of two
      GACCD_RETURN_IF_ERROR(writer->Poll());
    }
    return writer->Finish();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(Names(folder.Path("ckpt")),
              ElementsAre("step-000000000025-e000001", "step-000000000024-e000001",
                          "step-000000000020-e000001", "step-000000000010-e000001"));
}

// The first waits for the disk before anything of it is written.
TEST(WriterTest, PendingSavesHaveOwnCopies) {
  const TempFolder folder;
  const SmallRun run;
  const auto comm = MakeSingle();
  std::atomic<bool> disk_hangs = true;
  const auto now = [&, training = std::this_thread::get_id()] {
    while (disk_hangs && std::this_thread::get_id() != training) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::chrono::steady_clock::now();
  };
  const auto writer = ValueOrThrow(StartWriter(*comm, {.folder = folder.Path("ckpt"), .now = now},
                                               run.Identity(1), Me(), nullptr));
  EXPECT_OK(run.SaveAt(*writer, 1));
  EXPECT_OK(run.SaveAt(*writer, 2));
  disk_hangs = false;
  EXPECT_OK(writer->Finish());
  for (const std::int64_t step : {1, 2}) {
    EXPECT_TRUE(run.Matches(ValueOrThrow(
        LoadGeneration(*comm, folder.Path("ckpt"), {.epoch = 1, .step = step}, AcceptAll))))
        << step;
  }
}

TEST(WriterTest, FailureOnOneRankAbandonsSaveOnAllRanks) {
  const TempFolder folder;
  const SmallRun run;
  std::atomic<int> reported = 0;
  const Status status = RunThreadRanks(3, {}, [&](Communicator& comm) -> Status {
    const auto listen = [&](const SaveEvent& event) {
      if (event.status.ok()) return;
      ++reported;
      EXPECT_THAT(event.status, IsError(ErrorKind::kIo, "rank 1 on node0: ", "never overwritten"));
      EXPECT_EQ(event.failed_in_row, 1);
    };
    GACCD_ASSIGN_OR_RETURN(auto writer, StartWriter(comm, {.folder = folder.Path("ckpt")},
                                                    run.Identity(3), Me(), listen));
    if (comm.rank() == 0) Sabotage(folder.Path("ckpt"), 2, 1, 3);
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, 1));
    GACCD_RETURN_IF_ERROR(writer->Finish());
    GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, 2));
    EXPECT_THAT(writer->Finish(), HasKind(ErrorKind::kIo)) << "the last one failed";
    GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, 3));
    return writer->Finish();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(reported, 3);
  EXPECT_THAT(Names(folder.Path("ckpt")),
              ElementsAre("step-000000000003-e000001", "step-000000000001-e000001"))
      << "the prune after step 3 took the rest of step 2";
}

TEST(WriterTest, RetriesFailedSaveOnRequest) {
  const TempFolder folder;
  const SmallRun run;
  const Status status = RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(auto writer, StartWriter(comm, {.folder = folder.Path("ckpt")},
                                                    run.Identity(2), Me(), nullptr));
    if (comm.rank() == 0) Sabotage(folder.Path("ckpt"), 2, 1, 2);
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, 2));
    EXPECT_THAT(writer->Finish(), HasKind(ErrorKind::kIo));
    GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, 2));
    EXPECT_TRUE(writer->pending());
    return writer->Finish();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(Names(folder.Path("ckpt")), ElementsAre("step-000000000002-e000001"));
  EXPECT_TRUE(
      VerifyGeneration(folder.Path("ckpt"), {.epoch = 1, .step = 2, .committed = true}).ok());
}

// Only a partial update takes more memory than the start of the run did.
TEST(WriterTest, OutOfMemoryOnOneRankFailsSaveOnAll) {
#ifdef GACCD_SANITIZED
  GTEST_SKIP() << "a sanitizer's allocator ends the program instead";
#endif
  const TempFolder folder;
  const SmallRun run;
  const Status status = RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(auto writer, StartWriter(comm, {.folder = folder.Path("ckpt")},
                                                    run.Identity(2), Me(), nullptr));
    const Bytes parameters = run.Parameters(5);
    std::vector<BufferSource> sources = {HostSource("parameters", parameters)};
    if (comm.rank() == 1) {
      sources.push_back({{"accumulators", std::uint64_t{1} << 50, true},
                         [](std::uint64_t, std::span<std::byte>) { return Status::Ok(); }});
    }
    EXPECT_TRUE(writer->Save(SmallRun().CursorAt(5), sources).ok());
    EXPECT_THAT(writer->Finish(), IsError(ErrorKind::kConfig, "rank 1 on node0: no memory for "));
    return Status::Ok();
  });
  ASSERT_TRUE(status.ok()) << status.message();
}

TEST(WriterTest, EndsRunAfterTooManyConsecutiveFailures) {
  const TempFolder folder;
  const SmallRun run;
  const Status status = RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(auto writer,
                           StartWriter(comm, {.folder = folder.Path("ckpt"), .fail_limit = 3},
                                       run.Identity(2), Me(), nullptr));
    for (const std::int64_t step : {1, 2, 4, 5, 6}) {
      if (comm.rank() == 0) Sabotage(folder.Path("ckpt"), step, 0, 2);
    }
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    const auto save = [&](std::int64_t step) -> Status {
      GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, step));
      while (writer->pending()) GACCD_RETURN_IF_ERROR(writer->Poll());
      return Status::Ok();
    };
    for (const std::int64_t step : {1, 2, 3, 4, 5}) EXPECT_OK(save(step)) << step;
    EXPECT_THAT(save(6), IsError(ErrorKind::kIo, StartsWith("rank 0 on node0: '"),
                                 "; 3 saves failed in a row"))
        << "the cause first";
    return Status::Ok();
  });
  ASSERT_TRUE(status.ok()) << status.message();
}

TEST(LeaseTest, RefusesSecondWriterNamingFirst) {
  const TempFolder folder;
  const auto first = ValueOrThrow(WriterLease::Acquire(folder.path(), MakeOwnerName("123", 0)));
  EXPECT_EQ(first.epoch(), 1);
  const auto start = std::chrono::steady_clock::now();
  const auto second = WriterLease::Acquire(folder.path(), MakeOwnerName("124", 0));
  EXPECT_LT(std::chrono::steady_clock::now() - start, OwnerPatience().own_job) << "another job's";
  EXPECT_THAT(second, IsError(ErrorKind::kConfig, "is in use by job 123 (process "));
  EXPECT_TRUE(first.Check().ok());
}

TEST(LeaseTest, WaitsForPreviousAttemptForGivenTime) {
  const TempFolder folder;
  const auto first = ValueOrThrow(WriterLease::Acquire(folder.path(), MakeOwnerName("123", 0)));
  const auto comm = MakeSingle();
  const CheckpointOptions options{.folder = folder.path(),
                                  .lease_patience = {.own_job = std::chrono::milliseconds(100)}};
  EXPECT_THAT(CheckpointWriter::Claim(*comm, options, MakeOwnerName("123", 1)),
              IsError(ErrorKind::kTempFail, "has not ended for 0 s"));
}

TEST(LeaseTest, DoesNotWriteReplacedFolder) {
  const TempFolder folder;
  const std::string path = folder.path() + "/ckpt";
  std::filesystem::create_directory(path);
  const auto lease = ValueOrThrow(WriterLease::Acquire(path, Me()));
  EXPECT_TRUE(lease.Check().ok());
  std::filesystem::rename(path, folder.path() + "/moved");
  std::filesystem::create_directory(path);
  EXPECT_THAT(lease.Check(), HasKind(ErrorKind::kConfig));
}

TEST(LeaseTest, EpochsIncreaseAfterLostClaim) {
  const TempFolder folder;
  EXPECT_EQ(WriterLease::Acquire(folder.path(), Me())->epoch(), 1);
  EXPECT_EQ(WriterLease::Acquire(folder.path(), Me())->epoch(), 2);
  std::filesystem::remove(folder.path() + "/.epoch-000002");
  std::filesystem::create_directory(folder.path() + "/step-000000000001-e000007");
  EXPECT_EQ(WriterLease::Acquire(folder.path(), Me())->epoch(), 8);
}

// A writer that is killed, or finds the disk full, while it claims leaves an empty one.
TEST(LeaseTest, EmptyClaimDoesNotHidePreviousClaim) {
  const TempFolder folder;
  const auto first =
      ValueOrThrow(WriterLease::Acquire(folder.path(), MakeOwnerName("77", 0))).epoch();
  (void)folder.Write(".epoch-000002", "");
  EXPECT_EQ(ValueOrThrow(WriterLease::AcquireKeepingClaim(folder.path(), Me())).epoch(), 3);
  (void)folder.Write(".epoch-000004", "");
  const auto second = ValueOrThrow(WriterLease::Acquire(folder.path(), MakeOwnerName("77", 1)));
  EXPECT_EQ(second.epoch(), 5);
  EXPECT_EQ(second.job_since(), first);
}

// If it saves nothing, the next start must not continue from where that one went back to.
TEST(LeaseTest, NewTrainingForgetsThatAnEarlierStartWentBack) {
  const TempFolder folder;
  auto lease = ValueOrThrow(WriterLease::Acquire(folder.path(), Me()));
  ASSERT_OK(lease.GoBackTo(Generation{.epoch = 1, .step = 3}.name()));
  EXPECT_EQ(NewestTraining(folder.path()).back_since, 1);
  ASSERT_OK(lease.BeginTraining("never"));
  EXPECT_EQ(NewestTraining(folder.path()).since, 1);
  EXPECT_EQ(NewestTraining(folder.path()).back_since, 0);
}

TEST(LeaseTest, LastEpochIsFinal) {
  const TempFolder folder;
  (void)folder.Write(".epoch-999999998", "job 9 process 1 on n2\n");
  {
    const auto lease = ValueOrThrow(WriterLease::Acquire(folder.path(), Me()));
    EXPECT_EQ(lease.epoch(), 999'999'999);
    EXPECT_TRUE(lease.Check().ok());
  }
  EXPECT_THAT(WriterLease::Acquire(folder.path(), Me()), HasKind(ErrorKind::kData));
}

TEST(LeaseTest, DeadOwnerOfThisHostDoesNotBlock) {
  const TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lease = WriterLease::Acquire(folder.path(), MakeOwnerName("9", 0));
    ::_exit(lease.ok() ? 0 : 1);  // without releasing it
  }
  // Ended, but nobody has asked how: in containers it may stay like that.
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  {
    const auto lease = ValueOrThrow(WriterLease::Acquire(folder.path(), Me()));
    EXPECT_EQ(lease.epoch(), 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(WriterLease::Acquire(folder.path(), Me())->epoch(), 3);
}

TEST(LeaseTest, ReplacedWriterDoesNotCommit) {
  const TempFolder folder;
  const SmallRun run;
  const Status status = RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(auto writer, StartWriter(comm, {.folder = folder.Path("ckpt")},
                                                    run.Identity(2), Me(), nullptr));
    GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, 1));
    GACCD_RETURN_IF_ERROR(writer->Finish());
    // Another writer took the folder over, where locks do not hold this one off.
    if (comm.rank() == 0) {
      EXPECT_TRUE(ReplaceFile(folder.Path("ckpt") + "/.epoch-000002", "job 7 on n2\n", true).ok());
    }
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, 2));
    EXPECT_THAT(writer->Finish(),
                IsError(ErrorKind::kConfig, "was taken over: this run has writer epoch 1, found 2",
                        "job 7 on n2"));
    return Status::Ok();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  const auto comm = MakeSingle();
  const auto outcome = LoadNewest(*comm, folder.Path("ckpt"), AcceptAll);
  ASSERT_TRUE(outcome.ok() && outcome->state);
  EXPECT_EQ(outcome->state->generation.step, 1);
}

TEST(GenerationsTest, NamesAreStrict) {
  for (const Generation one : {Generation{1, 0, 0},
                               {999999, 123456789012, 0},
                               {7, 12, 34},
                               {1234567, 1234567890123, 1234567}}) {
    const auto again = ParseGenerationName(one.name());
    ASSERT_TRUE(again) << one.name();
    EXPECT_EQ(*again, one);
  }
  for (const char* name :
       {"", "step", "step-1-e000001", "step-000000000001", "step-000000000001-e000000",
        "step-000000000001-e0000010x", "step-000000000001-micro-000000-e000001",
        "step-0000000000010-e000001", "step--00000000001-e000001", "step-000000000001-e+00001",
        "step-99999999999999999999-e000001", "xstep-000000000001-e000001"}) {
    EXPECT_FALSE(ParseGenerationName(name)) << name;
  }
}

// Letters: C complete, D damaged, U unfinished; steps fall from left to right.
std::string Removed(const std::string& kinds, const KeepPolicy& policy, std::int64_t epoch = 1) {
  std::vector<Generation> all;
  std::vector<bool> complete;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    all.push_back({.epoch = 1,
                   .step = static_cast<std::int64_t>(kinds.size() - i),
                   .committed = kinds[i] != 'U'});
    complete.push_back(kinds[i] == 'C');
  }
  std::string steps;
  for (const Generation& one : ToRemove(all, complete, policy, epoch)) {
    steps += StrCat(one.step, " ");
  }
  return steps;
}

TEST(GenerationsTest, SelectsGenerationsToKeep) {
  EXPECT_EQ(Removed("CCCC", {.newest = 2}), "2 1 ");
  EXPECT_EQ(Removed("C", {.newest = 2}), "");
  EXPECT_EQ(Removed("UCCC", {.newest = 1}), "2 1 ") << "the newest may be being written";
  EXPECT_EQ(Removed("CUC", {.newest = 5}), "2 ") << "an older unfinished one is garbage";
  EXPECT_EQ(Removed("UCC", {.newest = 5}, 2), "3 ") << "of an earlier epoch too";
  EXPECT_EQ(Removed("UCC", {.newest = 1}, 0), "") << "a later writer's are not ours";
  EXPECT_EQ(Removed("DDCC", {.newest = 1}), "1 ") << "damaged ones do not count";
  EXPECT_EQ(Removed("DDD", {.newest = 1}), "") << "the last hope stays";
  EXPECT_EQ(Removed("CDC", {.newest = 1}), "2 1 ");
  EXPECT_EQ(Removed("CCCCCCCCCC", {.newest = 1, .every = 4}), "9 7 6 5 3 2 1 ");
  EXPECT_EQ(Removed("CCCCCCDCCC", {.newest = 1, .every = 4}), "9 7 6 4 3 2 1 ")
      << "a damaged one is no milestone";
}

TEST(GenerationsTest, KeepsBestInAdditionToNewest) {
  const auto at = [](std::int64_t step) {
    return Generation{.epoch = 1, .step = step, .committed = true};
  };
  const std::vector<Generation> all = {at(4), at(3), at(2), at(1)};
  const std::vector<bool> complete(4, true);
  EXPECT_THAT(ToRemove(all, complete, {.newest = 1}, 1, at(2)), ElementsAre(at(3), at(1)));
  EXPECT_THAT(ToRemove(all, complete, {.newest = 2}, 1, at(4)), ElementsAre(at(2), at(1)));
}

// The folder of a generation was exchanged for a link after it was listed.
TEST(GenerationsTest, DoesNotRemoveThroughLinks) {
  const TempFolder folder;
  const Generation generation{.epoch = 1, .step = 2};
  const std::string victim = folder.path() + "/thesis";
  const std::string shard = StrCat(victim, "/", ShardName(0, 1));
  const std::string manifest = StrCat(victim, "/", kManifestName);
  ASSERT_TRUE(MakeFolders(victim).ok());
  for (const std::string& file : {shard, manifest}) ASSERT_TRUE(ReplaceFile(file, "x", false).ok());
  std::filesystem::create_symlink(victim, StrCat(folder.path(), "/", generation.name()));
  EXPECT_THAT(RemoveGeneration(folder.path(), generation), HasKind(ErrorKind::kIo));
  Discard(folder.path(), generation, 0, 1);
  EXPECT_TRUE(std::filesystem::exists(shard));
  EXPECT_TRUE(std::filesystem::exists(manifest));
}

// What an earlier training has committed is not ours; what it left unfinished is garbage.
TEST(GenerationsTest, RemovesOnlyUnfinishedOnesOfEarlierTraining) {
  const TempFolder folder;
  const Generation committed{.epoch = 1, .step = 2};
  const Generation unfinished{.epoch = 1, .step = 4};
  for (const Generation& one : {committed, unfinished}) {
    ASSERT_OK(MakeFolders(one.PathIn(folder.path())));
  }
  ASSERT_OK(ReplaceFile(StrCat(committed.PathIn(folder.path()), "/", kManifestName), "x", false));
  const auto pruned = ValueOrThrow(Prune(folder.path(), {.newest = 1}, /*epoch=*/2, {}, 2));
  EXPECT_THAT(pruned.removed, ElementsAre(unfinished.name()));
}

std::optional<Generation> BestIn(const TempFolder& folder) {
  return FindBest(folder.path(), ValueOrThrow(ListGenerations(folder.path())));
}

// The start that goes back is the one that saves: update 6 of the line before has other weights.
TEST(GenerationsTest, BestIsNotOfTheLineThatTheNewestStartGaveUp) {
  const TempFolder folder;
  const CheckpointOptions options{.folder = folder.path()};
  SmallRun run;
  ASSERT_OK(SaveSteps(run, 1, options, {3, 6}));
  run.best_step = 6;
  ASSERT_OK(RunThreadRanks(1, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(CheckpointLease lease, CheckpointWriter::Claim(comm, options, Me()));
    GACCD_RETURN_IF_ERROR(lease.lease->GoBackTo(Generation{.epoch = 1, .step = 3}.name()));
    GACCD_ASSIGN_OR_RETURN(auto writer, CheckpointWriter::Start(comm, options, run.Identity(1),
                                                                std::move(lease), nullptr));
    GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, 9));
    return writer->Finish();
  }));
  EXPECT_FALSE(BestIn(folder));
}

// The start that continued from update 6 has evaluated it anew, over other data.
TEST(GenerationsTest, BestHasAnotherValueOverOtherData) {
  const TempFolder folder;
  const CheckpointOptions options{.folder = folder.path()};
  const SmallRun run;
  for (const std::int64_t step : {6, 9}) {
    ASSERT_OK(RunThreadRanks(1, {}, [&](Communicator& comm) -> Status {
      GACCD_ASSIGN_OR_RETURN(auto writer,
                             StartWriter(comm, options, run.Identity(1), Me(), nullptr));
      const Bytes parameters = run.Parameters(step);
      const Bytes optimizer = run.Optimizer(step);
      RunCursor cursor = run.CursorAt(step);
      cursor.content.eval = static_cast<std::uint64_t>(step);
      cursor.best = {.evaluated = step, .step = 6, .value = 1.0 / static_cast<double>(step)};
      GACCD_RETURN_IF_ERROR(writer->Save(cursor, std::vector{HostSource("parameters", parameters),
                                                             HostSource("optimizer", optimizer)}));
      return writer->Finish();
    }));
  }
  EXPECT_EQ(BestIn(folder), (Generation{.epoch = 1, .step = 6, .committed = true}));
}

TEST(GenerationsTest, KeepsMilestoneOfContinuedBranch) {
  const auto at = [](std::int64_t epoch, std::int64_t step) {
    return Generation{.epoch = epoch, .step = step, .committed = true};
  };
  const std::vector<Generation> all = {at(2, 9), at(2, 4), at(1, 5), at(1, 4), at(1, 3)};
  EXPECT_THAT(ToRemove(all, std::vector<bool>(5, true), {.newest = 1, .every = 4}, 2),
              ElementsAre(at(1, 5), at(1, 4), at(1, 3)));
}

}  // namespace
}  // namespace gaccd
