// The watch of a NCCL communicator notices the death of a process of the same node at once.
#include "collectives/comm/nccl_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <utility>

#include "collectives/comm/nccl_communicator.h"
#include "tests/standin/nccl/nccl_standin.h"
#include "tests/standin/standin.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using std::chrono::milliseconds;

// Far below the bound of a minute, and far above what a busy machine needs.
constexpr milliseconds kAtOnce{20'000};

// A process that only waits, in the place of a rank.
class OtherProcess {
 public:
  OtherProcess() : pid_(fork()) {
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // also where a test ends by a signal
      for (;;) pause();
    }
  }
  ~OtherProcess() {
    Kill();
    waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] ProcessName name() const { return {pid_, ThisProcess().pid_namespace}; }
  void Kill() const { kill(pid_, SIGKILL); }  // not reaped yet: as a rank that srun still holds

 private:
  pid_t pid_;
};

class NcclWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    standin::Reset();
    standin::ResetNccl();
  }
  void TearDown() override {
    if (other_ != nullptr) (void)StandInNccl()->CommAbort(other_);
    EXPECT_EQ(standin::LiveNcclComms(), 0);
    standin::ResetNccl();
    standin::Reset();
  }

  // Rank 0 of 2 on one node; rank 1 is `other`, which joined NCCL and then does nothing.
  std::unique_ptr<NcclWatch> StartWatch(const OtherProcess& other) {
    const NcclApi& api = *StandInNccl();
    ncclUniqueId id;
    EXPECT_EQ(api.GetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = NcclConfig("test");
    NcclWatchOptions options;
    options.api = &api;
    EXPECT_EQ(api.CommInitRankConfig(&options.comm, 2, id, 0, &config), ncclInProgress);
    EXPECT_EQ(api.CommInitRankConfig(&other_, 2, id, 1, &config), ncclInProgress);
    options.hosts = {"n0", "n0"};
    EXPECT_TRUE(options.peers.Watch(1, other.name()));
    return ValueOrThrow(NcclWatch::Start(std::move(options)));
  }

  ncclComm_t other_ = nullptr;
};

TEST_F(NcclWatchTest, NamesDeadPeerBeforeBound) {
  OtherProcess other;
  const auto watch = StartWatch(other);
  const auto stream = CudaStream::Create();
  const auto data = DeviceBuffer::Allocate(8, "data");
  const Status enqueued =
      watch->Enqueue(Operation::kAllReduce, stream->get(), [&](ncclComm_t comm) {
        return StandInNccl()->AllReduce(data->data(), data->data(), 2, ncclFloat32, ncclSum, comm,
                                        stream->get());
      });
  ASSERT_TRUE(enqueued.ok()) << enqueued.message();
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(watch->failure().ok());

  other.Kill();
  const auto start = std::chrono::steady_clock::now();
  // The stream comes back because the watch aborts; the bound is a minute.
  ASSERT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kAtOnce);
  EXPECT_THAT(watch->failure(),
              IsError(ErrorKind::kUnavailable, "rank 0 on n0, GPU 0: all-reduce #1 ended after",
                      "rank 1 on n0 has ended (its process does not exist)"));
}

// CUDA blocks the host in the record of an event while a stream has too much work: here behind a
// collective that waits for the dead rank.
TEST_F(NcclWatchTest, FullStreamDoesNotPreventAbort) {
  OtherProcess other;
  const auto watch = StartWatch(other);
  const auto stream = CudaStream::Create();
  const auto data = DeviceBuffer::Allocate(8, "data");
  const auto enqueue = [&] {
    return watch->Enqueue(Operation::kAllReduce, stream->get(), [&](ncclComm_t comm) {
      return StandInNccl()->AllReduce(data->data(), data->data(), 2, ncclFloat32, ncclSum, comm,
                                      stream->get());
    });
  };
  ASSERT_TRUE(enqueue().ok());
  standin::SetMaxPending(1);
  standin::SetEventsWait(true);
  std::atomic<bool> returned = false;
  Status blocked;
  std::thread host([&] {
    blocked = enqueue();
    returned = true;
  });
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(returned);

  other.Kill();
  const auto start = std::chrono::steady_clock::now();
  while (!returned && std::chrono::steady_clock::now() - start < kAtOnce) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(returned);
  standin::SetEventsWait(false);
  standin::SetMaxPending(standin::kMaxPending);
  host.join();
  EXPECT_THAT(blocked, HasMessage(HasSubstr("rank 1 on n0 has ended")));
  EXPECT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
}

// A rank that has done its part may leave before the others.
TEST_F(NcclWatchTest, IgnoresDeathWithoutOperations) {
  OtherProcess other;
  const auto watch = StartWatch(other);
  other.Kill();
  std::this_thread::sleep_for(milliseconds(700));
  EXPECT_TRUE(watch->failure().ok());
}

TEST_F(NcclWatchTest, DeathEndsCallInProgress) {
  OtherProcess other;
  const auto watch = StartWatch(other);
  other.Kill();
  const auto start = std::chrono::steady_clock::now();
  const NcclApi& api = *StandInNccl();
  void* data = nullptr;
  ASSERT_EQ(api.MemAlloc(&data, 4096), ncclSuccess);
  ncclWindow_t window = nullptr;
  const Status registered = watch->Call("ncclCommWindowRegister", [&](ncclComm_t comm) {
    return api.CommWindowRegister(comm, data, 4096, &window, NCCL_WIN_DEFAULT);
  });
  EXPECT_THAT(registered, HasMessage(HasSubstr("ncclCommWindowRegister: rank 1 on n0 has ended")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, kAtOnce);
  EXPECT_TRUE(watch->AbortEndsWithin(kAtOnce));
  (void)api.MemFree(data);
}

// As Poll() does when the heartbeat has found a rank lost. The heartbeat ends this process if that
// takes longer than 3 s.
TEST_F(NcclWatchTest, ExternalErrorDoesNotWaitForHangingAbort) {
  const NcclApi& api = *StandInNccl();
  const OtherProcess other;
  const auto watch = StartWatch(other);
  const auto stream = CudaStream::Create();
  void* data = nullptr;
  ASSERT_EQ(api.MemAlloc(&data, 4096), ncclSuccess);
  ncclWindow_t window = nullptr;
  const auto open = [&](ncclComm_t comm) {
    return api.CommWindowRegister(comm, data, 4096, &window, NCCL_WIN_COLL_SYMMETRIC);
  };
  (void)open(other_);
  ASSERT_TRUE(watch->Call("ncclCommWindowRegister", open).ok());
  const Status enqueued =
      watch->Enqueue(Operation::kAllReduce, stream->get(), [&](ncclComm_t comm) {
        return api.AllReduce(data, data, 2, ncclFloat32, ncclSum, comm, stream->get());
      });
  ASSERT_TRUE(enqueued.ok()) << enqueued.message();
  const auto start = std::chrono::steady_clock::now();
  const Status failed = watch->Fail({ErrorKind::kUnavailable, "rank 1 is lost"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(5'000)) << "End() waits for 6 s";
  EXPECT_THAT(failed, HasMessage(HasSubstr("rank 1 is lost")));
  EXPECT_EQ(cudaStreamQuery(stream->get()), cudaErrorNotReady);
  standin::EndKernelsOfNccl();
  watch->End();
  EXPECT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
  (void)api.CommAbort(std::exchange(other_, nullptr));
  EXPECT_EQ(api.MemFree(data), ncclSuccess);
}

}  // namespace
}  // namespace gaccd
