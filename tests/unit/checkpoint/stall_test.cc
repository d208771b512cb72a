// A file system that does not answer, or is nearly full: calls of this program are caught on their
// way to the C library. Each thread has its own clock, because a writer only compares times of one
// thread.
#include <gmock/gmock.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/shard.h"
#include "tests/support/small_run.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thread_clock.h"

namespace gaccd {
namespace {

using namespace std::chrono_literals;
using tests::ThreadClock;
using Clock = std::chrono::steady_clock;

// While it is stalled, fsync() waits for files whose path contains `part`.
class Disk {
 public:
  void Stall(const std::string& part) {
    const std::lock_guard lock(mutex_);
    reached = false;
    part_ = part;
    released_.notify_all();  // a thread that waits for another file
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    part_.clear();
    slow_.clear();
    failing_.clear();
    stalls_after_failure_ = false;
    changing_.clear();
    released_.notify_all();
  }
  // fsync() of a folder that has this file succeeds, and changes what is in it.
  void ChangeInFolder(const std::string& file) {
    const std::lock_guard lock(mutex_);
    changing_ = file;
  }
  // fsync() of a folder that has this file fails. then_stalls: what follows for this folder waits.
  void FailFolderWith(const std::string& file, bool then_stalls = false) {
    const std::lock_guard lock(mutex_);
    reached = false;
    failing_ = file;
    stalls_after_failure_ = then_stalls;
  }
  // fsync() of a file whose path contains `part` advances the clock of its thread.
  void Slow(const std::string& part, std::chrono::milliseconds takes) {
    const std::lock_guard lock(mutex_);
    slow_.emplace_back(part, takes);
  }
  // Whether fsync() succeeds.
  bool Pass(int fd) {
    std::error_code error;
    const std::string path =
        std::filesystem::read_symlink(StrCat("/proc/self/fd/", fd), error).string();
    std::unique_lock lock(mutex_);
    for (const auto& [slow, takes] : slow_) {
      if (path.find(slow) != std::string::npos) ThreadClock::Advance(takes);
    }
    if (!part_.empty() && path.find(part_) != std::string::npos) reached = true;
    // The limit ends the wait of a caller that must not wait for the disk.
    EXPECT_TRUE(released_.wait_for(lock, 20s, [&] {
      return part_.empty() || path.find(part_) == std::string::npos;
    })) << path;
    const bool fails = !failing_.empty() && PathExists(StrCat(path, "/", failing_));
    if (fails && stalls_after_failure_) part_ = path;
    const std::string changed = StrCat(path, "/", changing_);
    if (!changing_.empty() && PathExists(changed)) std::ofstream(changed, std::ios::app) << "\n";
    return !fails;
  }
  std::atomic<bool> reached = false;          // an fsync() waits since Stall()
  std::atomic<std::uint64_t> free_bytes = 0;  // what statvfs() tells; 0: the truth

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  std::string part_;
  std::string failing_;
  std::string changing_;
  bool stalls_after_failure_ = false;
  std::vector<std::pair<std::string, std::chrono::milliseconds>> slow_;
};
Disk disk;

}  // namespace
}  // namespace gaccd

extern "C" int fsync(int fd) {
  if (!gaccd::disk.Pass(fd)) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int statvfs(const char*, struct statvfs* info) noexcept {
  const std::uint64_t free = gaccd::disk.free_bytes;
  *info = {};
  info->f_frsize = 1;
  info->f_bavail = free > 0 ? free : std::uint64_t{1} << 50;
  return 0;
}

namespace gaccd {
namespace {

class StallTest : public ::testing::Test {
 protected:
  ~StallTest() override {
    disk.Release();
    disk.free_bytes = 0;
  }
  // Two ranks, each with a writer, which exchange often while they wait for the disk.
  Status OnTwo(CheckpointOptions options,
               const std::function<Status(Communicator&, CheckpointWriter&)>& body) {
    options.folder = folder_.Path("ckpt");
    options.exchange_every = 5ms;
    options.now = ThreadClock::Now;
    return RunThreadRanks(2, {.comm = {.bound = 20s}}, [&](Communicator& comm) -> Status {
      GACCD_ASSIGN_OR_RETURN(auto writer,
                             StartWriter(comm, options, run_.Identity(2), Me(),
                                         [&, rank = comm.rank()](const SaveEvent& event) {
                                           events_[static_cast<std::size_t>(rank)] = event;
                                         }));
      return body(comm, *writer);
    });
  }

  static void WaitFor(const std::string& path) {
    for (int i = 0; i < 6000 && !PathExists(path); ++i) std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(PathExists(path));
  }

  TempFolder folder_;
  SmallRun run_;
  std::array<SaveEvent, 2> events_;  // the last of each rank
};

// The ranks exchange at a fixed interval while they wait for the disk, so no bound is exceeded.
TEST_F(StallTest, RanksExchangeWhileDiskHangs) {
  for (const std::string part : {"shard-00001", "MANIFEST"}) {
    const std::int64_t first = part == "MANIFEST" ? 10 : 0;
    std::atomic<int> exchanges = 0;  // of both ranks
    const CheckpointOptions options = {.give_up = [&] {
      if (++exchanges == 10) disk.Release();
      return GiveUp::kNo;
    }};
    disk.Stall(part);
    const Status status = OnTwo(options, [&](auto&, auto& writer) -> Status {
      const auto save = [&]() -> Status {
        for (std::int64_t step = first + 1; step <= first + 3; ++step) {
          GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, step));  // the third waits for the first
        }
        return writer.Finish();
      };
      const Status saved = save();
      disk.Release();  // for a rank that waits alone
      return saved;
    });
    EXPECT_TRUE(status.ok()) << part << ": " << status.message();
  }
}

TEST_F(StallTest, MeasuresSaveWithoutBoundaries) {
  disk.Slow("shard-00001", 400ms);
  disk.Slow("MANIFEST", 300ms);
  std::array<int, 2> updates{};
  const Status status = OnTwo({}, [&](auto& comm, auto& writer) -> Status {
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    while (writer.pending()) {
      ThreadClock::Advance(1s);
      ++updates[static_cast<std::size_t>(comm.rank())];
      std::this_thread::sleep_for(1ms);
      GACCD_RETURN_IF_ERROR(writer.Poll());
    }
    return Status::Ok();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  for (const SaveEvent& event : events_) {
    EXPECT_DOUBLE_EQ(event.write_s, 0.4) << "of the slowest rank";
    EXPECT_DOUBLE_EQ(event.commit_s, 0.3) << "of rank 0";
    EXPECT_DOUBLE_EQ(event.save_s(), 0.7);
    EXPECT_DOUBLE_EQ(event.total_s, updates[0]) << "until a boundary";
  }
}

// Neither Save() nor Poll() waits for the disk.
TEST_F(StallTest, AlarmsOncePerSaveDuringTraining) {
  std::vector<std::string> warnings;
  const CheckpointOptions options = {.warn = [&](const auto& text) { warnings.push_back(text); },
                                     .alarm_after = 1s};
  disk.Stall("shard-00001");
  const Status status = OnTwo(options, [&](auto& comm, auto& writer) -> Status {
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 3));
    WaitFor(folder_.Path("ckpt") + "/step-000000000003-e000001/shard-00000-of-00002.bin");
    std::this_thread::sleep_for(20ms);  // until the helper of rank 0 has reported its result
    for (int i = 1; i <= 13; ++i) {
      ThreadClock::Advance(100ms);
      GACCD_RETURN_IF_ERROR(writer.Poll());
      if (comm.rank() != 0) continue;
      EXPECT_EQ(warnings.size(), i < 10 ? 0U : 1U) << i;
    }
    disk.Release();
    return writer.Finish();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  // Rank 0 is also late where its helper has not reported yet.
  EXPECT_THAT(warnings,
              ElementsAre(AllOf(HasSubstr("update 3 has been writing for 1 s"),
                                AnyOf(HasSubstr("system of rank 1 on node0 does not"),
                                      HasSubstr("system of rank 0 on node0 and of 1 more does")))));
}

TEST_F(StallTest, StopOfOneRankEndsWaitOnAll) {
  std::atomic<int> asked = 0;
  const CheckpointOptions options = {.give_up = [&] {
    return disk.reached && ++asked == 3 ? GiveUp::kStopRequested : GiveUp::kNo;
  }};
  const auto start = Clock::now();
  disk.Stall("shard-00001");
  ExpectOk(OnTwo(options, [&](auto&, auto& writer) -> Status {
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 2));
    EXPECT_THAT(writer.Finish(),
                IsError(ErrorKind::kInterrupted, "an immediate exit was requested"));
    EXPECT_THAT(writer.Finish(), HasKind(ErrorKind::kInterrupted)) << "also when asked again";
    return Status::Ok();
  }));
  EXPECT_LT(Clock::now() - start, WorkerThread::kPatience) << "the writer's destructor waited";
  // The helper was left behind: it continues when the disk does, and touches nothing that is gone.
  disk.Release();
  const std::string shard = "/shard-00001-of-00002.bin";
  WaitFor(folder_.Path("ckpt") + "/step-000000000001-e000001" + shard);
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(PathExists(folder_.Path("ckpt") + "/step-000000000002-e000001" + shard))
      << "not begun, so dropped";
}

TEST_F(StallTest, TrainingContinuesWithoutSpaceForSave) {
  thread_local int exchanges = 0;  // while this rank waits
  const CheckpointOptions options = {.patience = 100ms,
                                     .end_patience = 100ms,  // not meant for these waits
                                     .give_up = [] {
                                       if (++exchanges <= 4) ThreadClock::Advance(30ms);
                                       return GiveUp::kNo;
                                     }};
  disk.Stall("shard-00001");
  ExpectOk(OnTwo(options, [&](auto& comm, auto& writer) -> Status {
    EXPECT_TRUE(writer.has_room());
    for (std::int64_t step = 1; step <= 2; ++step) {
      GACCD_ASSIGN_OR_RETURN(const bool room, writer.MakeRoom());
      EXPECT_TRUE(room) << step;
      GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, step));
    }
    for (std::int64_t step = 3; step <= 5; ++step) {
      EXPECT_FALSE(writer.has_room());
      GACCD_ASSIGN_OR_RETURN(const bool room, writer.MakeRoom());
      EXPECT_FALSE(room);
      EXPECT_EQ(exchanges, 4) << "only step 3 waited";
      GACCD_RETURN_IF_ERROR(writer.Poll());
    }
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    disk.Release();
    while (!writer.has_room()) {
      std::this_thread::sleep_for(1ms);
      GACCD_RETURN_IF_ERROR(writer.Poll());
    }
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 6));
    GACCD_RETURN_IF_ERROR(writer.Finish());
    const SaveEvent& event = events_[static_cast<std::size_t>(comm.rank())];
    EXPECT_EQ(event.generation.step, 6);
    EXPECT_OK(event.status);
    EXPECT_NEAR(event.wait_s, 4 * 0.03, 1e-9) << "also while it waited for a free buffer";
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 7));
    GACCD_RETURN_IF_ERROR(writer.Finish());
    EXPECT_EQ(event.generation.step, 7);
    EXPECT_EQ(event.wait_s, 0) << "the save before waited, not this one";
    return Status::Ok();
  }));
}

TEST_F(StallTest, BoundsWaitForHangingDiskAtEnd) {
  const CheckpointOptions options = {.end_patience = 7s, .give_up = [] {
                                       ThreadClock::Advance(1s);
                                       return GiveUp::kNo;
                                     }};
  disk.Stall("shard-00001");
  ExpectOk(OnTwo(options, [&](auto&, auto& writer) -> Status {
    for (std::int64_t step = 1; step <= 2; ++step) GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, step));
    EXPECT_THAT(writer.Finish(),
                IsError(ErrorKind::kTempFail, StrCat("the file system of '", folder_.Path("ckpt"),
                                                     "' does not answer: not written after 7 s")));
    return Status::Ok();
  }));
}

// Otherwise the new writer could read it before it is taken back.
TEST_F(StallTest, ReplacedWriterWritesNoManifest) {
  ExpectOk(OnTwo({}, [&](auto& comm, auto& writer) -> Status {
    if (comm.rank() == 0) (void)folder_.Write("ckpt/.epoch-000002", "job 7 on n2\n");
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    disk.FailFolderWith(std::string(kManifestName));  // the lease is looked at first
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    EXPECT_THAT(writer.Finish(), IsError(ErrorKind::kConfig, "was taken over"));
    return Status::Ok();
  }));
}

// What it says about the training is in no other file.
TEST_F(StallTest, KeepsOldLeaseIfNewOneIsNotDurable) {
  ASSERT_OK(WriterLease::Acquire(folder_.path(), Me()));
  disk.FailFolderWith(".epoch-000002");
  EXPECT_THAT(WriterLease::Acquire(folder_.path(), Me()), HasKind(ErrorKind::kIo));
  EXPECT_TRUE(PathExists(folder_.path() + "/.epoch-000001"));
  EXPECT_FALSE(PathExists(folder_.path() + "/.epoch-000002")) << "it would hide the other one";
}

// What is durable inside it would be lost with its name.
TEST_F(StallTest, RequiresDurableNameOfFolder) {
  const auto comm = MakeSingle();
  disk.FailFolderWith("ckpt");
  EXPECT_THAT(CheckpointWriter::Claim(*comm, {.folder = folder_.Path("ckpt")}, Me()),
              HasKind(ErrorKind::kIo));
}

// The ranks take their shards back then: what has a manifest has all its shards.
TEST_F(StallTest, RemovesManifestThatIsNotDurable) {
  disk.FailFolderWith(std::string(kManifestName));
  ExpectOk(OnTwo({}, [&](auto&, auto& writer) -> Status {
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    EXPECT_THAT(writer.Finish(), HasKind(ErrorKind::kIo));
    return Status::Ok();
  }));
  const auto all = ListGenerations(folder_.Path("ckpt"));
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 1U);
  EXPECT_FALSE(all->front().committed);
}

// A file system that has accepted it holds another text.
TEST_F(StallTest, RemovesManifestThatReadsDifferently) {
  disk.ChangeInFolder(std::string(kManifestName));
  ExpectOk(OnTwo({}, [&](auto&, auto& writer) -> Status {
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    EXPECT_THAT(writer.Finish(), IsError(ErrorKind::kIo, "reads differently than written"));
    return Status::Ok();
  }));
  const auto all = ValueOrThrow(ListGenerations(folder_.Path("ckpt")));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_FALSE(all.front().committed);
}

// Otherwise other ranks could remove their shards before.
TEST_F(StallTest, FailedCommitIsKnownAfterRemovalOfManifest) {
  std::atomic<int> exchanges = 0;  // of both ranks during the removal
  const CheckpointOptions options = {.give_up = [&] {
    if (disk.reached && ++exchanges == 10) disk.Release();
    return GiveUp::kNo;
  }};
  disk.FailFolderWith(std::string(kManifestName), /*then_stalls=*/true);
  ExpectOk(OnTwo(options, [&](auto&, auto& writer) -> Status {
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    EXPECT_THAT(writer.Finish(), HasKind(ErrorKind::kIo));
    EXPECT_GE(exchanges, 10);
    disk.Release();
    return Status::Ok();
  }));
}

// Without it, the manifest is lost with its folder.
TEST_F(StallTest, CommitRequiresDurableNameOfGeneration) {
  disk.FailFolderWith(Generation{.epoch = 1, .step = 1}.name());
  ExpectOk(OnTwo({}, [&](auto&, auto& writer) -> Status {
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    EXPECT_THAT(writer.Finish(), HasKind(ErrorKind::kIo));
    return Status::Ok();
  }));
  EXPECT_FALSE(ValueOrThrow(ListGenerations(folder_.Path("ckpt"))).front().committed);
}

// After a power failure a manifest could be there again, without its shards.
TEST_F(StallTest, KeepsShardsUntilRemovalOfManifestIsDurable) {
  ExpectOk(OnTwo({}, [&](auto&, auto& writer) -> Status {
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    return writer.Finish();
  }));
  const Generation saved{.epoch = 1, .step = 1};
  const std::string path = saved.PathIn(folder_.Path("ckpt"));
  disk.FailFolderWith(ShardName(0, 2));
  EXPECT_THAT(RemoveGeneration(folder_.Path("ckpt"), saved), HasKind(ErrorKind::kIo));
  EXPECT_FALSE(PathExists(StrCat(path, "/", kManifestName)));
  for (const int rank : {0, 1}) EXPECT_TRUE(PathExists(StrCat(path, "/", ShardName(rank, 2))));
}

// The shard takes some 10 s, and then the manifest.
TEST_F(StallTest, WaitsForSlowDisk) {
  std::atomic<int> waits = 0;  // of both ranks, in step
  const CheckpointOptions options = {.end_patience = 15s, .give_up = [&] {
                                       if (!disk.reached || waits >= 40) return GiveUp::kNo;
                                       ThreadClock::Advance(1s);
                                       const int all = ++waits;
                                       if (all == 20) disk.Stall("MANIFEST");
                                       if (all == 40) disk.Release();
                                       return GiveUp::kNo;
                                     }};
  disk.Stall("shard-00001");
  ExpectOk(OnTwo(options, [&](auto&, auto& writer) -> Status {
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    return writer.Finish();
  }));
  EXPECT_GE(waits, 40);
  EXPECT_EQ(events_[0].generation.step, 1);
}

TEST_F(StallTest, RankWithoutTimeEndsWaitOnAll) {
  std::atomic<int> asked = 0;
  const CheckpointOptions options = {
      .give_up = [&] { return ++asked == 3 ? GiveUp::kNoTime : GiveUp::kNo; }};
  disk.Stall("shard-00001");
  ExpectOk(OnTwo(options, [&](auto&, auto& writer) -> Status {
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    const Status left = writer.Finish();
    EXPECT_THAT(left, IsError(ErrorKind::kTempFail, "no time left"));
    return Status::Ok();
  }));
}

TEST_F(StallTest, WarnsOfLittleSpaceBeforeFirstSave) {
  std::vector<std::string> warnings;
  const CheckpointOptions options = {.keep = {.newest = 3},
                                     .warn = [&](const auto& text) { warnings.push_back(text); }};
  const auto start = [&] { return OnTwo(options, [](auto&, auto&) { return Status::Ok(); }); };
  // Two shards of 12000 bytes together, 88 bytes of header each and one block's CRC.
  const std::uint64_t needed = 5 * (12'000 + 2 * 88 + 2 * 4);
  disk.free_bytes = needed;
  EXPECT_TRUE(start().ok());
  EXPECT_THAT(warnings, ElementsAre());
  disk.free_bytes = needed - 1;
  EXPECT_TRUE(start().ok());
  EXPECT_THAT(warnings,
              ElementsAre(HasSubstr(StrCat("5 checkpoints of 12184 bytes are still to be written "
                                           "at the same time: expected ",
                                           needed, " bytes free, found ", needed - 1))));
}

// Two to keep, one being written and one not yet removed; those of an earlier training stay.
TEST_F(StallTest, CheckpointsOfEarlierTrainingMakeNoSpace) {
  for (const std::int64_t step : {1, 2}) {
    ASSERT_OK(MakeFolders(Generation{.epoch = 1, .step = step}.PathIn(folder_.path())));
  }
  const std::vector<BufferSpec> buffers = run_.Identity(1).buffers;
  SaveState state;
  state.options.folder = folder_.path();
  state.options.keep.newest = 2;
  disk.free_bytes =
      3 * ShardBytes({.world = 1, .block_bytes = state.options.block_bytes, .buffers = buffers});
  EXPECT_OK(CheckSpace(state, buffers));
  state.since = 2;
  EXPECT_THAT(CheckSpace(state, buffers), IsError(ErrorKind::kIo, "4 checkpoints"));
}

}  // namespace
}  // namespace gaccd
