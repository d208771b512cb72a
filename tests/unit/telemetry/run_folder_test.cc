#include "daemon/rundir/run_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "collectives/base/strings.h"
#include "daemon/inspect/watch/run_folders.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/telemetry/json.h"

namespace gaccd {
namespace {

using testing_json::Content;
namespace fs = std::filesystem;

RunFolderRequest Request(const std::string& run_dir, AttemptSource source = {}) {
  return {run_dir, "name: \"a\"\n", "mode: \"exact\"\n", std::move(source)};
}

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string Latest(const std::string& run_dir) {
  return fs::read_symlink(run_dir + "/attempts/latest").string();
}

TEST(RunFolderTest, CreatesLayout) {
  const TempFolder dir;
  const std::string run_dir = dir.path() + "/deep/er/run";
  auto folder = ValueOrThrow(RunFolder::Create(Request(run_dir)));
  const std::string name = StrCat("000-local-", ::getpid());
  EXPECT_EQ(folder.attempt_dir(), fs::canonical(run_dir).string() + "/attempts/" + name);
  EXPECT_EQ(folder.job(), StrCat("local-", ::getpid()));
  EXPECT_EQ(Latest(run_dir), name);
  EXPECT_TRUE(fs::is_directory(folder.log_dir()));
  EXPECT_EQ(fs::file_size(folder.attempt_dir() + "/events.jsonl"), 0u);
  for (const std::string& place : {run_dir, folder.attempt_dir()}) {
    EXPECT_THAT(Content(place + "/job.txtpb"), HasSubstr("\nname: \"a\"\n"));
    EXPECT_THAT(Content(place + "/plan.txtpb"), HasSubstr("\nmode: \"exact\"\n"));
  }
  EXPECT_TRUE(folder.ReleaseEventFile().valid());
}

// Of everything below `path`, links apart.
void ExpectModes(const std::string& path, int folder_mode, int file_mode) {
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_symlink()) continue;
    const int mode = static_cast<int>(entry.status().permissions()) & 0777;
    EXPECT_EQ(mode, entry.is_directory() ? folder_mode : file_mode) << entry.path();
  }
}

TEST(RunFolderTest, IsReadableByOwnerOnly) {
  const TempFolder dir;
  const mode_t before = ::umask(0);
  const auto folder = RunFolder::Create(Request(dir.path() + "/run"));
  ::umask(before);
  ASSERT_TRUE(folder.ok());
  ExpectModes(dir.path(), 0700, 0600);
}

TEST(RunFolderTest, AllowsGroupAccessOnRequest) {
  const TempFolder dir;
  const mode_t before = ::umask(0);
  RunFolderRequest request = Request(dir.path() + "/run");
  request.modes = kGroupMayRead;
  const auto folder = RunFolder::Create(request);
  ::umask(before);
  ASSERT_TRUE(folder.ok());
  ::chmod((dir.path() + "/run/.owner").c_str(), 0640);  // only for who takes the folder
  ExpectModes(dir.path(), 0750, 0640);
}

TEST(RunFolderTest, RefusesUnsafePath) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make a folder of somebody else";
  const TempFolder dir;
  ASSERT_EQ(::chown(dir.path().c_str(), 4711, static_cast<gid_t>(-1)), 0);
  ASSERT_EQ(::chmod(dir.path().c_str(), 0777), 0);
  EXPECT_THAT(RunFolder::Create(Request(dir.path() + "/run")),
              IsError(ErrorKind::kConfig, "belongs to user 4711 and has mode 0777"));
}

TEST(RunFolderTest, EveryAttemptHasItsOwnFolder) {
  const TempFolder dir;
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto folder = ValueOrThrow(RunFolder::Create(Request(dir.path())));
    EXPECT_EQ(folder.attempt(), attempt);
    Write(folder.attempt_dir() + "/events.jsonl", StrCat("attempt ", attempt));
  }
  for (int attempt = 0; attempt < 3; ++attempt) {
    const std::string name = StrCat("00", attempt, "-local-", ::getpid());
    EXPECT_EQ(Content(dir.path() + "/attempts/" + name + "/events.jsonl"),
              StrCat("attempt ", attempt));
    if (attempt == 2) {
      EXPECT_EQ(Latest(dir.path()), name);
    }
  }
}

TEST(RunFolderTest, CountsAttemptsLikeReaders) {
  for (const char* name : {"005-", "005-.2", "1234567890-7", "05-7", "-005-7", "0x5-7", "005-a\x1b",
                           "005-7", "005-7.2"}) {
    const TempFolder dir;
    fs::create_directories(StrCat(dir.path(), "/attempts/", name));
    const auto folder = ValueOrThrow(RunFolder::Create(Request(dir.path())));
    const auto list = ValueOrThrow(ListAttempts(dir.path()));
    EXPECT_EQ(folder.attempt(), std::string_view(name).starts_with("005-7") ? 6 : 0) << name;
    EXPECT_EQ(list.attempts.size(), folder.attempt() > 0 ? 2U : 1U) << name;
  }
}

TEST(RunFolderTest, UsesSlurmNameOfAttempt) {
  const TempFolder dir;
  const AttemptSource source{.attempt_dir = {}, .slurm_job_id = "8123456", .restart_count = 2};
  {
    auto folder = ValueOrThrow(RunFolder::Create(Request(dir.path(), source)));
    EXPECT_EQ(Latest(dir.path()), "002-8123456");
    EXPECT_EQ(folder.attempt(), 2);
    EXPECT_EQ(folder.job(), "8123456");
  }
  // A second run of the same job leaves the files of the first alone.
  const auto folder = ValueOrThrow(RunFolder::Create(Request(dir.path(), source)));
  EXPECT_EQ(Latest(dir.path()), "002-8123456.2");
}

TEST(RunFolderTest, UsesFolderOfBatchScript) {
  const TempFolder dir;
  const std::string made = dir.path() + "/attempts/001-77";
  fs::create_directories(made);
  auto folder = ValueOrThrow(RunFolder::Create(
      Request(dir.path(), {.attempt_dir = made, .slurm_job_id = "77", .restart_count = 1})));
  EXPECT_EQ(folder.attempt_dir(), fs::canonical(made).string());
  EXPECT_EQ(folder.attempt(), 1);
}

TEST(RunFolderTest, RefusesAnAttemptFolderOfAnotherRun) {
  const TempFolder dir;
  const std::string other = dir.path() + "/other/attempts/001-77";
  fs::create_directories(other);
  EXPECT_THAT(
      RunFolder::Create(Request(dir.path() + "/run", {.attempt_dir = other, .slurm_job_id = "77"})),
      IsError(ErrorKind::kConfig, other));
}

TEST(RunFolderTest, KeepsJobTextOfUser) {
  const TempFolder dir;
  Write(dir.path() + "/job.txtpb", "# mine\n");
  auto folder = ValueOrThrow(RunFolder::Create(Request(dir.path())));
  EXPECT_EQ(Content(dir.path() + "/job.txtpb"), "# mine\n");
  EXPECT_THAT(Content(folder.attempt_dir() + "/job.txtpb"), HasSubstr("name: \"a\""));
}

TEST(RunFolderTest, NamesPathAndReasonOfWriteError) {
  const TempFolder dir;
  Write(dir.path() + "/file", "");
  EXPECT_THAT(RunFolder::Create(Request(dir.path() + "/file/run")),
              IsError(ErrorKind::kIo, dir.path() + "/file", "Not a directory"));
  EXPECT_THAT(RunFolder::Create(Request("/proc/gaccd-run")),
              IsError(ErrorKind::kIo, "/proc/gaccd-run"));
}

TEST(RunFolderTest, RefusesSecondLiveRunNamingFirst) {
  const TempFolder dir;
  const AttemptSource first{.attempt_dir = {}, .slurm_job_id = "41"};
  auto owner = ValueOrThrow(RunFolder::Create(Request(dir.path(), first)));
  EXPECT_THAT(RunFolder::Create(Request(dir.path(), {.attempt_dir = {}, .slurm_job_id = "42"})),
              IsError(ErrorKind::kConfig, StrCat("job 41 (process ", ::getpid())));
  EXPECT_FALSE(fs::exists(dir.path() + "/attempts/000-42")) << "the refused run wrote something";
  owner.owner().Release();
  EXPECT_TRUE(
      RunFolder::Create(Request(dir.path(), {.attempt_dir = {}, .slurm_job_id = "42"})).ok());
}

// A process that is killed leaves its name in the owner file, and no lock.
TEST(RunFolderTest, KilledRunDoesNotBlock) {
  const TempFolder dir;
  const pid_t child = ::fork();
  if (child == 0) {
    auto folder = RunFolder::Create(Request(dir.path()));
    ::_exit(folder.ok() ? 0 : 1);
  }
  int result = -1;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  ASSERT_EQ(result, 0);
  ASSERT_THAT(Content(dir.path() + "/.owner"), HasSubstr(StrCat("pid ", child)));
  const auto folder = ValueOrThrow(RunFolder::Create(Request(dir.path())));
}

class ForeignOwnerTest : public testing::Test {
 protected:
  // Another host's owner file, last touched so many seconds ago.
  void WriteOwner(const std::string& job, int age_seconds) {
    const std::string path = dir_.path() + "/.owner";
    Write(path, StrCat("job ", job, "\nattempt 0\nhost elsewhere\npid 123\nstarted 5\n"));
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(age_seconds));
  }
  Result<RunFolder> Create(const std::string& job, int restarts) {
    return RunFolder::Create(
        Request(dir_.path(), {.attempt_dir = {}, .slurm_job_id = job, .restart_count = restarts}));
  }
  TempFolder dir_;
};

TEST_F(ForeignOwnerTest, FreshOwnerBlocks) {
  WriteOwner("41", 20);
  EXPECT_THAT(Create("42", 0),
              HasMessage(HasSubstr("job 41 (process 123 on elsewhere), whose last heartbeat")));
}

TEST_F(ForeignOwnerTest, OldOwnerDoesNotBlock) {
  WriteOwner("41", 120);
  EXPECT_TRUE(Create("42", 0).ok());
}

TEST_F(ForeignOwnerTest, RequeuedJobReclaimsItsFolder) {
  WriteOwner("41", 1);
  EXPECT_FALSE(Create("41", 0).ok()) << "another step of the same job";
  EXPECT_TRUE(Create("41", 1).ok());
}

TEST_F(ForeignOwnerTest, HeartbeatMakesOwnerFresh) {
  auto mine = ValueOrThrow(Create("42", 0));
  const std::string path = dir_.path() + "/.owner";
  const auto old = fs::file_time_type::clock::now() - std::chrono::seconds(500);
  fs::last_write_time(path, old);
  mine.owner().Beat();
  EXPECT_GT(fs::last_write_time(path), old + std::chrono::seconds(400));
}

// The owner's lock is gone but its process lives: where locks do not work, the name has to do.
TEST(FolderOwnerTest, LiveProcessOfThisHostBlocksWithoutLock) {
  const TempFolder dir;
  OwnerName me = MakeOwnerName("7", 0);
  ASSERT_GT(me.started, 0);
  const auto write = [&] {
    Write(dir.path() + "/.owner", StrCat("job 7\nattempt 0\nhost ", me.host, "\npid ", me.pid,
                                         "\nstarted ", me.started, "\n"));
  };
  write();
  EXPECT_FALSE(FolderOwner::Acquire(dir.path(), me).ok());
  me.started -= 1;  // the pid was given to another process since
  write();
  EXPECT_TRUE(FolderOwner::Acquire(dir.path(), me).ok());
}

class BusyFolderTest : public testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kShort{300};
  // More than a busy machine needs.
  static constexpr std::chrono::milliseconds kLong{20'000};

  // As job 7, restart 1, to a folder that job `job`, restart 0, holds for this time, or,
  // without one, until this call returns.
  Status Take(const std::string& job, std::optional<std::chrono::milliseconds> held,
              OwnerPatience patience) {
    auto first = ValueOrThrow(FolderOwner::Acquire(dir_.path(), MakeOwnerName(job, 0)));
    const auto start = Clock::now();
    std::jthread ending([&] {
      if (!held) return;
      std::this_thread::sleep_for(*held);
      first.Release();
    });
    Status status = FolderOwner::Acquire(dir_.path(), MakeOwnerName("7", 1), patience).status();
    waited_ = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    return status;
  }

  TempFolder dir_;
  std::chrono::milliseconds waited_{};
};

TEST_F(BusyFolderTest, WaitsForPreviousAttempt) {
  EXPECT_TRUE(Take("7", kShort, {}).ok());
  EXPECT_GE(waited_, kShort);
  EXPECT_LT(waited_, kLong);
}

TEST_F(BusyFolderTest, RequeuesIfPreviousAttemptDoesNotEnd) {
  EXPECT_THAT(Take("7", {}, {.own_job = kShort}),
              IsError(ErrorKind::kTempFail, "attempt 0 of this job"));
}

TEST_F(BusyFolderTest, WaitsForGivenTime) {
  const auto owner = ValueOrThrow(FolderOwner::Acquire(dir_.path(), MakeOwnerName("7", 0)));
  RunFolderRequest request = Request(
      dir_.path(), {.attempt_dir = {}, .slurm_job_id = "7", .restart_count = 1, .step_id = -1});
  request.patience = {.own_job = kShort};
  EXPECT_THAT(RunFolder::Create(request), IsError(ErrorKind::kTempFail, "has not ended for 0 s"));
}

// A controller that lost its state starts the same attempt twice; two steps of one job are two
// runs.
TEST_F(BusyFolderTest, SecondStartOfSameStepIsRequeuedAnotherStepIsRefused) {
  const auto owner = ValueOrThrow(FolderOwner::Acquire(dir_.path(), MakeOwnerName("7", 0, 0)));
  const OwnerPatience patience{.own_job = kShort, .other = kShort};
  const auto take = [&](std::int64_t step) {
    return FolderOwner::Acquire(dir_.path(), MakeOwnerName("7", 0, step), patience).status().kind();
  };
  EXPECT_EQ(take(0), ErrorKind::kTempFail);
  EXPECT_EQ(take(1), ErrorKind::kConfig);
  EXPECT_EQ(take(-1), ErrorKind::kConfig);
  const TempFolder outside;  // without steps no name says which start is which
  const OwnerName me = MakeOwnerName("7", 0);
  const auto first = ValueOrThrow(FolderOwner::Acquire(outside.path(), me));
  EXPECT_THAT(FolderOwner::Acquire(outside.path(), me, patience), HasKind(ErrorKind::kConfig));
}

TEST_F(BusyFolderTest, RefusesOtherRunSoonUnlessItEnds) {
  EXPECT_LE(OwnerPatience().other, std::chrono::seconds(1));
  EXPECT_THAT(Take("8", {}, {.other = kShort}), IsError(ErrorKind::kConfig, "in use by job 8"));
  EXPECT_LT(waited_, kLong);
  EXPECT_TRUE(Take("8", kShort, {.other = kLong}).ok());
}

// What is put in the owner file's place by somebody else is neither emptied nor waited for.
TEST(FolderOwnerTest, DetectsReplacedFolder) {
  const TempFolder dir;
  const std::string run = dir.path() + "/run";
  fs::create_directory(run);
  const auto owner = ValueOrThrow(FolderOwner::Acquire(run, MakeOwnerName("77", 0)));
  EXPECT_TRUE(owner.CheckInPlace().ok());
  fs::rename(run, dir.path() + "/moved");
  EXPECT_TRUE(owner.CheckInPlace().ok()) << "what is missing fails by itself";
  fs::create_directory(run);
  EXPECT_THAT(owner.CheckInPlace(), IsError(ErrorKind::kConfig, run));
  // As on a file system that numbers its folders anew.
  fs::copy(dir.path() + "/moved/.owner", run);
  EXPECT_TRUE(owner.CheckInPlace().ok());
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(run.c_str(), 4711, static_cast<gid_t>(-1)), 0);
    EXPECT_THAT(owner.CheckInPlace(), HasMessage(HasSubstr("4711"))) << "a copy made by somebody";
  }
  fs::remove_all(run);
  fs::rename(dir.path() + "/moved", run);
  EXPECT_TRUE(owner.CheckInPlace().ok());
}

TEST(FolderOwnerTest, DoesNotTakeOtherFiles) {
  const TempFolder dir;
  const std::string path = dir.path() + "/.owner";
  const std::string victim = dir.path() + "/thesis";
  Write(victim, "years of work");
  const auto take = [&] {
    return FolderOwner::Acquire(dir.path(), MakeOwnerName("7", 0)).status();
  };
  ASSERT_EQ(::link(victim.c_str(), path.c_str()), 0);
  EXPECT_THAT(take(), HasMessage(HasSubstr("with 2 names")));
  EXPECT_EQ(Content(victim), "years of work");
  ::unlink(path.c_str());
  ASSERT_EQ(::symlink(victim.c_str(), path.c_str()), 0);
  EXPECT_THAT(take(), HasKind(ErrorKind::kIo));
  EXPECT_EQ(Content(victim), "years of work");
  ::unlink(path.c_str());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(take(), HasKind(ErrorKind::kConfig));
  ::unlink(path.c_str());
  Write(path, "");
  if (::geteuid() != 0) return;  // only root can give files away
  ASSERT_EQ(::chown(path.c_str(), 4711, static_cast<gid_t>(-1)), 0);
  EXPECT_THAT(take(), HasMessage(HasSubstr("found one of user 4711")));
}

TEST(FolderOwnerTest, IgnoresInvalidProcessNumber) {
  const OwnerName me = MakeOwnerName("7", 0);
  for (const std::int64_t pid : {std::int64_t{-1}, -me.pid, (std::int64_t{1} << 32) + me.pid}) {
    const TempFolder dir;
    Write(dir.path() + "/.owner", StrCat("job 8\nattempt 0\nhost ", me.host, "\npid ", pid,
                                         "\nstarted ", me.started, "\n"));
    EXPECT_TRUE(FolderOwner::Acquire(dir.path(), me).ok()) << pid;
  }
}

TEST(FolderOwnerTest, IgnoresGarbageInOwnerFile) {
  const TempFolder dir;
  Write(dir.path() + "/.owner", "\x01\x02 pid\nhost\n");
  EXPECT_TRUE(FolderOwner::Acquire(dir.path(), MakeOwnerName("7", 0)).ok());
}

}  // namespace
}  // namespace gaccd
