// A file system that does not answer, or is nearly full: calls of this program are caught on their
// way to the C library.
#include <gmock/gmock.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/helper_thread.h"
#include "tests/unit/base/status_matchers.h"
#include "tests/unit/checkpoint/small_run.h"
#include "tests/unit/temp_folder.h"

namespace gaccd {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// While it is stalled, fsync() waits for files whose path contains `part`.
class Disk {
 public:
  void Stall(const std::string& part) {
    const std::lock_guard lock(mutex_);
    part_ = part;
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    part_.clear();
    released_.notify_all();
  }
  void Pass(int fd) {
    std::error_code error;
    const std::string path =
        std::filesystem::read_symlink(StrCat("/proc/self/fd/", fd), error).string();
    std::unique_lock lock(mutex_);
    released_.wait(lock, [&] { return part_.empty() || path.find(part_) == std::string::npos; });
  }
  std::atomic<std::uint64_t> free_bytes = 0;  // what statvfs() tells; 0: the truth

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  std::string part_;
};
Disk disk;

}  // namespace
}  // namespace gaccd

extern "C" int fsync(int fd) {
  gaccd::disk.Pass(fd);
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
  // Two ranks, each with a writer.
  Status OnTwo(const CheckpointOptions& options, std::chrono::milliseconds bound,
               const std::function<Status(Communicator&, CheckpointWriter&)>& body) {
    return RunThreadRanks(2, {.comm = {.bound = bound}}, [&](Communicator& comm) -> Status {
      GACCD_ASSIGN_OR_RETURN(auto writer,
                             StartWriter(comm, options, run_.Identity(2), Me(),
                                         [&, rank = comm.rank()](const SaveEvent& event) {
                                           events_[static_cast<std::size_t>(rank)] = event;
                                         }));
      return body(comm, *writer);
    });
  }

  TempFolder folder_;
  SmallRun run_;
  std::array<SaveEvent, 2> events_;  // the last of each rank
};

TEST_F(StallTest, ADiskThatIsSlowerThanTheBoundIsNoLostRank) {
  for (const std::string part : {"shard-00001", "MANIFEST"}) {
    const std::int64_t first = part == "MANIFEST" ? 10 : 0;
    std::jthread release;
    const Status status =
        OnTwo({.folder = folder_.Path("ckpt")}, 2s, [&](auto& comm, auto& writer) -> Status {
          if (comm.rank() == 0) {
            disk.Stall(part);
            release = std::jthread([] {
              std::this_thread::sleep_for(1800ms);
              disk.Release();
            });
          }
          GACCD_RETURN_IF_ERROR(comm.Barrier());
          // The third waits for the first.
          for (std::int64_t step = first + 1; step <= first + 3; ++step) {
            GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, step));
          }
          return writer.Finish();
        });
    EXPECT_TRUE(status.ok()) << part << ": " << status.message();
  }
}

TEST_F(StallTest, WhatASaveTakesIsMeasuredWithoutTheBoundaries) {
  const Status status = OnTwo({.folder = folder_.Path("ckpt")}, 60s, [&](auto& comm, auto& writer) {
    disk.Stall("shard-00001");
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    std::this_thread::sleep_for(200ms);
    disk.Release();
    while (writer.pending()) {
      std::this_thread::sleep_for(1s);  // an update
      GACCD_RETURN_IF_ERROR(writer.Poll());
    }
    return Status::Ok();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  for (const SaveEvent& event : events_) {
    EXPECT_GE(event.total_s, 2.2);
    EXPECT_GE(event.write_s, 0.19) << "of the slowest rank";
    EXPECT_GT(event.commit_s, 0);
    EXPECT_LT(event.save_s(), 1.1);
  }
  EXPECT_EQ(events_[0].write_s, events_[1].write_s);
  EXPECT_EQ(events_[0].commit_s, events_[1].commit_s);
}

TEST_F(StallTest, TheAlarmComesOnceASaveWhileTrainingGoesOn) {
  std::vector<std::string> warnings;
  const CheckpointOptions options = {.folder = folder_.Path("ckpt"),
                                     .warn = [&](const auto& text) { warnings.push_back(text); },
                                     .alarm_after = 1s};
  const Status status = OnTwo(options, 60s, [&](auto& comm, auto& writer) {
    disk.Stall("shard-00001");
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 3));
    for (int i = 0; i < 13; ++i) {
      std::this_thread::sleep_for(100ms);
      GACCD_RETURN_IF_ERROR(writer.Poll());
    }
    disk.Release();
    return writer.Finish();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(warnings, ElementsAre("save of update 3 has been writing for 1 s: the file system of "
                                    "rank 1 on node0 does not answer"));
}

TEST_F(StallTest, OneRankThatIsToldToLeaveEndsTheWaitOnAll) {
  std::atomic<int> asked = 0;
  const CheckpointOptions options = {.folder = folder_.Path("ckpt"), .give_up = [&] {
                                       return ++asked == 3 ? GiveUp::kAsked : GiveUp::kNo;
                                     }};
  const auto start = Clock::now();
  disk.Stall("shard-00001");
  const Status status = OnTwo(options, 60s, [&](auto&, auto& writer) -> Status {
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    const Status left = writer.Finish();
    EXPECT_THAT(left, HasKind(ErrorKind::kInterrupted));
    EXPECT_THAT(left, HasMessage(HasSubstr("an immediate exit was requested")));
    EXPECT_THAT(writer.Finish(), HasKind(ErrorKind::kInterrupted)) << "also when asked again";
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_LT(Clock::now() - start, HelperThread::kPatience) << "the writer's destructor waited";
  // The helper was left behind: it goes on when the disk does, and touches nothing that is gone.
  disk.Release();
  const std::string shard =
      folder_.Path("ckpt") + "/step-000000000001-e000001/shard-00001-of-00002.bin";
  for (int i = 0; i < 500 && !PathExists(shard); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(PathExists(shard));
}

TEST_F(StallTest, TrainingGoesOnWithoutASaveForWhichThereIsNoRoom) {
  const CheckpointOptions options = {.folder = folder_.Path("ckpt"), .patience = 100ms};
  const Status status = OnTwo(options, 2s, [&](auto& comm, auto& writer) -> Status {
    EXPECT_TRUE(writer.has_room());
    disk.Stall("shard-00001");
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    for (std::int64_t step = 1; step <= 2; ++step) {
      GACCD_ASSIGN_OR_RETURN(const bool room, writer.MakeRoom());
      EXPECT_TRUE(room) << step;
      GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, step));
    }
    for (std::int64_t step = 3; step <= 5; ++step) {
      EXPECT_FALSE(writer.has_room());
      const auto start = Clock::now();
      GACCD_ASSIGN_OR_RETURN(const bool room, writer.MakeRoom());
      EXPECT_FALSE(room);
      if (step > 3) {
        EXPECT_LT(Clock::now() - start, 400ms) << "known: not waited for again";
      }
      GACCD_RETURN_IF_ERROR(writer.Poll());
    }
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    disk.Release();
    while (!writer.has_room()) {
      std::this_thread::sleep_for(1ms);
      GACCD_RETURN_IF_ERROR(writer.Poll());
    }
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 6));
    return writer.Finish();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(events_[0].generation.step, 6);
  EXPECT_TRUE(events_[0].status.ok());
}

TEST_F(StallTest, ADiskThatHangsIsWaitedForOnlySoLongAtTheEnd) {
  const CheckpointOptions options = {.folder = folder_.Path("ckpt"), .end_patience = 100ms};
  disk.Stall("shard-00001");
  const Status status = OnTwo(options, 60s, [&](auto&, auto& writer) -> Status {
    for (std::int64_t step = 1; step <= 2; ++step) {
      GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, step));
    }
    const Status left = writer.Finish();
    EXPECT_THAT(left, HasKind(ErrorKind::kTempFail));
    EXPECT_THAT(left, HasMessage(HasSubstr(StrCat("the file system of '", folder_.Path("ckpt"),
                                                  "' does not answer"))));
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(StallTest, ARankWithoutTimeEndsTheWaitOnAll) {
  std::atomic<int> asked = 0;
  const CheckpointOptions options = {.folder = folder_.Path("ckpt"), .give_up = [&] {
                                       return ++asked == 3 ? GiveUp::kNoTime : GiveUp::kNo;
                                     }};
  disk.Stall("shard-00001");
  const Status status = OnTwo(options, 60s, [&](auto&, auto& writer) -> Status {
    GACCD_RETURN_IF_ERROR(run_.SaveAt(writer, 1));
    const Status left = writer.Finish();
    EXPECT_THAT(left, HasKind(ErrorKind::kTempFail));
    EXPECT_THAT(left, HasMessage(HasSubstr("no time left")));
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(StallTest, LittleSpaceIsToldBeforeTheFirstSave) {
  std::vector<std::string> warnings;
  const CheckpointOptions options = {.folder = folder_.Path("ckpt"),
                                     .keep = {.newest = 3},
                                     .warn = [&](const auto& text) { warnings.push_back(text); }};
  const auto start = [&] { return OnTwo(options, 60s, [](auto&, auto&) { return Status::Ok(); }); };
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

TEST(HelperThreadTest, ATaskThatHangsIsLeftBehind) {
  std::promise<void> begun;
  std::promise<void> ended;
  const auto gate = std::make_shared<std::promise<void>>();
  auto helper = HelperThread::Start({}, 10s);
  ASSERT_TRUE(helper.ok());
  (*helper)->Add([&, gate] {
    begun.set_value();
    gate->get_future().wait();
    ended.set_value();
  });
  std::atomic<bool> second = false;
  (*helper)->Add([&] { second = true; });
  begun.get_future().wait();
  const auto start = Clock::now();
  EXPECT_FALSE((*helper)->End(20ms));
  helper->reset();
  EXPECT_LT(Clock::now() - start, HelperThread::kPatience / 2);
  gate->set_value();
  ended.get_future().wait();
  EXPECT_FALSE(second) << "not begun, so dropped";
}

TEST(HelperThreadTest, ATaskThatEndsIsWaitedFor) {
  std::promise<void> begun;
  std::atomic<bool> done = false;
  auto helper = HelperThread::Start({}, 10s);
  ASSERT_TRUE(helper.ok());
  (*helper)->Add([&] {
    begun.set_value();
    std::this_thread::sleep_for(50ms);
    done = true;
  });
  begun.get_future().wait();
  EXPECT_TRUE((*helper)->End(HelperThread::kPatience));
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace gaccd
