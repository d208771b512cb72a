// When NCCL, a rank or a GPU fails, every rank gets an error in time, and it says who and where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "collectives/comm/nccl_communicator.h"
#include "collectives/comm/nccl_hello.h"
#include "collectives/comm/nccl_watch.h"
#include "tests/ranks/device_copies.h"
#include "tests/ranks/nccl_ranks.h"
#include "tests/sanitized.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using std::chrono::milliseconds;
using tests::NcclRanks;
using tests::ResetGpus;

// Not so short that a rank that comes is late on a busy machine, or its watch without a sign of
// life.
constexpr milliseconds kBound{tests::kSanitized ? 8'000 : 3'000};
// For tests that must not wait for the deadline. A busy machine needs far less than kGpuAtOnce.
constexpr milliseconds kGpuLongBound{60'000};
constexpr milliseconds kGpuAtOnce{20'000};

// What each rank found, and how long it took. Ranks that fail stay until all have failed, so that
// none learns of it from the end of another.
struct NcclOutcome {
  Status status;
  milliseconds took{0};
};

std::vector<NcclOutcome> RunUntilAllFail(int ranks, const NcclRanks& asked,
                                         const std::function<Status(Communicator&)>& body,
                                         const std::function<Status(Communicator&)>& after = {},
                                         milliseconds bound = kBound) {
  NcclRanks options = asked;
  options.group.comm.bound = bound;
  options.nccl.comm.bound = bound;
  std::vector<NcclOutcome> outcomes(static_cast<std::size_t>(ranks));
  std::atomic<int> ended = 0;
  (void)RunThreadRanks(ranks, options.group, [&](Communicator& over) {
    const auto start = std::chrono::steady_clock::now();
    NcclOptions nccl = options.nccl;
    nccl.device = over.rank();
    nccl.api = StandInNccl();
    NcclOutcome& outcome = outcomes[static_cast<std::size_t>(over.rank())];
    auto comm = MakeNccl(over, nccl);
    outcome.status = comm.ok() ? body(**comm) : comm.status();
    outcome.took =
        std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
    if (after && comm.ok()) outcome.status = after(**comm);
    ++ended;
    while (ended < ranks) std::this_thread::sleep_for(milliseconds(1));
    return Status::Ok();
  });
  return outcomes;
}

void ExpectUnavailable(const NcclOutcome& outcome, const std::string& part) {
  ASSERT_THAT(outcome.status, IsError(ErrorKind::kUnavailable, part));
  EXPECT_LT(outcome.took, kGpuAtOnce) << outcome.status.message();
}

// One all-reduce of 5 elements on the device, waited for.
Status SumOnDevice(Communicator& comm) {
  GACCD_ASSIGN_OR_RETURN(const auto copies, tests::DeviceCopies::Make(comm));
  std::vector<float> data(5);
  return copies->AllReduceSum(View(std::span(data)), View(std::span(data)), {});
}

class NcclFailureTest : public ::testing::Test {
 protected:
  void SetUp() override { ResetGpus(3); }
  void TearDown() override {
    EXPECT_EQ(standin::LiveNcclComms(), 0);
    ResetGpus(1);
  }
};

Status Nothing(Communicator&) { return Status::Ok(); }

TEST_F(NcclFailureTest, FailingRootEndsAllAtOnce) {
  standin::FailNccl("ncclGetUniqueId", -1, ncclSystemError);
  for (const NcclOutcome& outcome : RunUntilAllFail(3, {}, Nothing, {}, kGpuLongBound)) {
    ExpectUnavailable(outcome, "rank 0 on node0: ncclGetUniqueId: unhandled system error");
  }
  EXPECT_EQ(standin::CountNccl()["ncclCommInitRankConfig"], 0);
}

TEST_F(NcclFailureTest, RefusesOldLibraryNamingBothVersions) {
  ResetGpus(3, {.version = 22'007});
  for (const NcclOutcome& outcome : RunUntilAllFail(2, {}, Nothing)) {
    ExpectUnavailable(outcome, "the loaded libnccl.so.2 is 2.20.7");
    ExpectUnavailable(outcome, "needs 2.27.0 or newer");
  }
}

TEST_F(NcclFailureTest, MissingGpuFailsAll) {
  ResetGpus(2);
  for (const NcclOutcome& outcome : RunUntilAllFail(3, {}, Nothing)) {
    ExpectUnavailable(outcome, "rank 2 on node0: cudaSetDevice(2)");
  }
}

TEST_F(NcclFailureTest, RankThatCannotJoinFailsAllInTime) {
  standin::FailNccl("ncclCommInitRankConfig", 1, ncclInternalError);
  for (const NcclOutcome& outcome : RunUntilAllFail(3, {}, Nothing)) {
    ExpectUnavailable(outcome, "ncclCommInitRank: ");
  }
  EXPECT_EQ(standin::CountNccl()["ncclCommAbort"], 2);
}

// Libraries that are read from a cold disk: no wait for a peer.
TEST_F(NcclFailureTest, StartMayExceedBound) {
  ResetGpus(2, {.start = kBound + milliseconds(200)});
  for (const NcclOutcome& outcome : RunUntilAllFail(2, {}, Nothing)) {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_GT(outcome.took, kBound);
  }
}

TEST_F(NcclFailureTest, HangingStartNamesRanks) {
  ResetGpus(2, {.start = std::chrono::hours(1)});
  NcclRanks options;
  options.nccl.start_limit = milliseconds(200);
  for (const NcclOutcome& outcome : RunUntilAllFail(2, options, Nothing)) {
    ExpectUnavailable(outcome, "not ready within 0 s on rank 0 on node0, rank 1 on node0");
  }
}

// Also on another node, of whose processes nothing is known here.
TEST_F(NcclFailureTest, LostRankEndsStart) {
  ThreadGroupOptions group{.comm = {.bound = kGpuLongBound}, .ranks_per_node = 1};
  std::vector<std::string> messages(2);
  const auto start = std::chrono::steady_clock::now();
  (void)RunThreadRanks(3, group, [&](Communicator& over) -> Status {
    if (over.rank() == 2) {
      NcclHello mine;
      mine.version = NCCL_VERSION_CODE;
      mine.bound_ms = 60'000;
      mine.message_elements = static_cast<std::int64_t>(NcclOptions().message_elements);
      return ExchangeHellos(over, mine).status();  // and ends
    }
    const auto comm = MakeNccl(over, {.device = over.rank(), .api = StandInNccl()});
    messages[static_cast<std::size_t>(over.rank())] = comm.status().message();
    return comm.status();
  });
  const std::string all = messages[0] + messages[1];
  EXPECT_THAT(all, HasSubstr("rank 2 has ended"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, kGpuAtOnce) << "without a limit";
}

TEST_F(NcclFailureTest, AsynchronousErrorNamesRankHostGpuAndCollective) {
  standin::BreakNccl(1, 2, ncclRemoteError);
  const auto sum_twice = [](Communicator& comm) {
    GACCD_RETURN_IF_ERROR(SumOnDevice(comm));
    return SumOnDevice(comm);
  };
  const auto outcomes = RunUntilAllFail(3, {}, sum_twice, {}, kGpuLongBound);
  // Its watch or its enqueuing thread is the first to find it.
  ExpectUnavailable(outcomes[1], "rank 1 on node0, GPU 1: ");
  ExpectUnavailable(outcomes[1],
                    "all-reduce #2: asynchronous error of NCCL: remote process exited or there was "
                    "a network error");
  // The others do not wait for their deadline.
  for (const std::size_t rank : {0, 2}) {
    ExpectUnavailable(outcomes[rank],
                      StrCat("rank ", rank, " on node0, GPU ", rank, ": all-reduce #"));
    ExpectUnavailable(outcomes[rank], "rank 1 on node0 gave up");
  }
}

// Its connections break at once; it counts as ended only later.
TEST_F(NcclFailureTest, WaitsForAndNamesDyingProcess) {
  const pid_t dying = fork();
  if (dying == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  const NcclApi& api = *StandInNccl();
  NcclWatchOptions options{.api = &api, .hosts = {"node0", "node0"}, .bound = kGpuLongBound};
  ASSERT_TRUE(options.peers.Watch(1, {dying, ThisProcess().pid_namespace}));
  ncclConfig_t config = NcclConfig("test");
  ncclUniqueId id{};
  ASSERT_EQ(api.GetUniqueId(&id), ncclSuccess);
  ncclResult_t made = api.CommInitRankConfig(&options.comm, 1, id, 0, &config);
  while (made == ncclInProgress) ASSERT_EQ(api.CommGetAsyncError(options.comm, &made), ncclSuccess);
  ASSERT_EQ(made, ncclSuccess);
  const auto watch = ValueOrThrow(NcclWatch::Start(std::move(options)));
  const CudaStream stream = ValueOrThrow(CudaStream::Create());
  const DeviceBuffer data = ValueOrThrow(DeviceBuffer::Allocate(8, "data"));
  standin::BreakNccl(0, 1, ncclRemoteError);
  (void)watch->Enqueue(Operation::kAllReduce, stream.get(), [&](ncclComm_t comm) {
    return api.AllReduce(data.data(), data.data(), 2, ncclFloat32, ncclSum, comm, stream.get());
  });
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_OK(watch->failure());
  kill(dying, SIGKILL);
  EXPECT_THAT(watch->WaitIdle(), HasMessage(AllOf(HasSubstr("asynchronous error of NCCL"),
                                                  HasSubstr("rank 1 on node0 has ended"))));
  watch->End();
  (void)cudaStreamSynchronize(stream.get());
  EXPECT_EQ(waitpid(dying, nullptr, 0), dying);
}

TEST_F(NcclFailureTest, AbsentRankIsADeadlineError) {
  const auto outcomes = RunUntilAllFail(3, {}, [](Communicator& comm) {
    return comm.rank() == 1 ? Status::Ok() : SumOnDevice(comm);
  });
  EXPECT_TRUE(outcomes[1].status.ok());
  for (const std::size_t rank : {0, 2}) {
    ExpectUnavailable(outcomes[rank],
                      StrCat("rank ", rank, " on node0, GPU ", rank, ": all-reduce"));
    ExpectUnavailable(outcomes[rank], "s): rank 1 on node0 did not enter all-reduce #1");
  }
  EXPECT_EQ(standin::CountNccl()["ncclCommAbort"], 2);
}

// The part counts its ranks 0 and 1; they are 1 and 2.
TEST_F(NcclFailureTest, ParentFailsWithChildAndNamesItsOwnRank) {
  std::optional<CommFailure> failure;
  const auto sum_in_part = [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(const auto part, comm.Split(comm.rank() == 0 ? 1 : 0, comm.rank()));
    if (comm.rank() == 2) std::this_thread::sleep_for(kBound);
    if (comm.rank() != 1) return {ErrorKind::kUnavailable, "took no part"};
    EXPECT_THAT(SumOnDevice(*part), HasKind(ErrorKind::kUnavailable));
    failure = comm.failure();
    return comm.Poll();
  };
  const auto outcomes = RunUntilAllFail(3, {}, sum_in_part);
  ExpectUnavailable(outcomes[1], "the communicator of ranks 1, 2 (renumbered from 0 below): ");
  ExpectUnavailable(outcomes[1], "rank 1 on node0 did not enter all-reduce #1");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->missing, (std::vector<MissingRank>{{2, Absence::kBehind}}));
}

TEST_F(NcclFailureTest, RankOfAnotherNodeIsUnknown) {
  NcclRanks options;
  options.group.ranks_per_node = 2;
  const auto outcomes = RunUntilAllFail(3, options, [](Communicator& comm) {
    return comm.rank() == 2 ? Status::Ok() : SumOnDevice(comm);
  });
  // The later one of the two may see that the other has given up.
  const bool first = outcomes[0].status.message().find("was not done after") != std::string::npos;
  ExpectUnavailable(outcomes[first ? 0 : 1],
                    "1 other ranks of this node entered it; 1 ranks on other nodes are unknown");
}

TEST_F(NcclFailureTest, KeepsFirstError) {
  const auto outcomes = RunUntilAllFail(
      2, {}, [](Communicator& comm) { return comm.rank() == 1 ? Status::Ok() : SumOnDevice(comm); },
      [](Communicator& comm) -> Status {
        if (comm.rank() == 1) return Status::Ok();
        const std::string first = comm.Poll().message();
        EXPECT_THAT(first, HasSubstr("all-reduce #1"));
        std::int64_t one = 1;
        EXPECT_THAT(SumOnDevice(comm), HasMessage(first));
        EXPECT_THAT(comm.Broadcast(View(std::span(&one, 1)), 0), HasMessage(first));
        EXPECT_THAT(comm.Barrier(), HasMessage(first));
        EXPECT_THAT(comm.Allocate(8), HasMessage(first));
        EXPECT_THAT(comm.Split(0, 0), HasMessage(first));
        return Status::Ok();
      });
}

// Rank 0 sums what Allocate() gave; rank 1 does not come. What rank 0 does with its stream is
// `wait`.
std::vector<NcclOutcome> SumAlone(const NcclRanks& options,
                                  const std::function<Status(Communicator&, cudaStream_t)>& wait) {
  return RunUntilAllFail(2, options, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(const auto memory, comm.Allocate(4096));
    if (comm.rank() == 1) return Status::Ok();
    GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
    const MutableBuffer buffer{memory->data(), 1024, DType::kF32, MemoryKind::kCuda};
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(buffer, buffer, stream.handle()));
    return wait(comm, stream.get());
  });
}

// Until nothing is on the stream, but not for ever. True: the kernel has left by itself.
bool KernelLeaves(cudaStream_t stream) {
  const auto end = std::chrono::steady_clock::now() + 3 * kBound;
  while (cudaStreamQuery(stream) == cudaErrorNotReady) {
    if (std::chrono::steady_clock::now() < end) continue;
    standin::EndKernelsOfNccl();
    return false;
  }
  return true;
}

TEST_F(NcclFailureTest, KernelsLeaveAllocatedMemory) {
  (void)SumAlone({}, [](Communicator& comm, cudaStream_t stream) {
    EXPECT_TRUE(KernelLeaves(stream));
    return comm.Poll();
  });
}

// Symmetric kernels do not leave: who waits by Poll() gets the error all the same, and at once.
TEST_F(NcclFailureTest, HangingAbortBlocksNoRank) {
  NcclRanks options;
  options.nccl.windows = true;
  const auto outcomes = SumAlone(options, [](Communicator& comm, cudaStream_t stream) -> Status {
    Status status;
    while (status.ok()) status = comm.Poll();
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    standin::EndKernelsOfNccl();
    EXPECT_TRUE(KernelLeaves(stream));
    return status;
  });
  ExpectUnavailable(outcomes[0], "rank 1 on node0 did not enter all-reduce #1");
}

// The deadline is for waiting for each other, not for the computation in front.
TEST_F(NcclFailureTest, AllowsLongPrecedingComputation) {
  const auto outcomes = RunUntilAllFail(2, {}, [](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
    GACCD_ASSIGN_OR_RETURN(const DeviceBuffer data, DeviceBuffer::Allocate(8, "data"));
    GACCD_RETURN_IF_ERROR(CudaStatus(
        standin::Enqueue(stream.get(), "a long computation",
                         [] { std::this_thread::sleep_for(kBound + milliseconds(300)); }, {}),
        "enqueue"));
    const MutableBuffer buffer{data.data(), 2, DType::kF32, MemoryKind::kCuda};
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(buffer, buffer, stream.handle()));
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream.get()), "wait"));
    return comm.Poll();
  });
  for (const NcclOutcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  }
}

TEST_F(NcclFailureTest, RefusesDifferentSizes) {
  const auto outcomes = RunUntilAllFail(2, {}, [](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(const auto copies, tests::DeviceCopies::Make(comm));
    std::vector<float> data(comm.rank() == 0 ? 4 : 5);
    return copies->AllReduceSum(View(std::span(data)), View(std::span(data)), {});
  });
  for (const NcclOutcome& outcome : outcomes) ExpectUnavailable(outcome, "all-reduce #1");
}

TEST_F(NcclFailureTest, AbortEndsOtherRanks) {
  const auto outcomes = RunUntilAllFail(
      2, {},
      [](Communicator& comm) {
        if (comm.rank() == 0) return SumOnDevice(comm);
        comm.Abort(70);
        return comm.Poll();
      },
      [](Communicator& comm) { return comm.rank() == 0 ? comm.Poll() : comm.Barrier(); });
  ExpectUnavailable(outcomes[0], "all-reduce #1");
  ExpectUnavailable(outcomes[1], "has aborted with exit code 70");
}

TEST_F(NcclFailureTest, NamesBrokenGpu) {
  const auto outcomes = RunUntilAllFail(2, {}, [](Communicator& comm) {
    if (comm.rank() == 0) standin::FailDevice(0, cudaErrorIllegalAddress);
    return SumOnDevice(comm);
  });
  EXPECT_THAT(outcomes[0].status, HasMessage(HasSubstr("cudaErrorIllegalAddress")));
  // That rank did not arrive; or its watch was the first to notice, and gave up.
  ExpectUnavailable(outcomes[1], "rank 1 on node0, GPU 1: all-reduce #1");
  ExpectUnavailable(outcomes[1], ": rank 0 on node0 ");
}

TEST_F(NcclFailureTest, RefusesCapturedStream) {
  const auto outcomes = RunUntilAllFail(1, {}, [](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
    GACCD_ASSIGN_OR_RETURN(const DeviceBuffer data, DeviceBuffer::Allocate(8, "data"));
    const MutableBuffer buffer{data.data(), 2, DType::kF32, MemoryKind::kCuda};
    (void)cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal);
    const Status refused = comm.AllReduceSum(buffer, buffer, stream.handle());
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
    (void)cudaGraphDestroy(graph);
    EXPECT_TRUE(comm.Poll().ok());
    return refused;
  });
  EXPECT_THAT(outcomes[0].status, HasMessage(HasSubstr("the stream is being captured")));
}

// Others may capture graphs while the watch asks its events.
TEST_F(NcclFailureTest, WatchDoesNotAffectCaptureOfAnotherThread) {
  const auto outcomes = RunUntilAllFail(1, {}, [](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
    GACCD_ASSIGN_OR_RETURN(const CudaStream captured, CudaStream::Create());
    GACCD_ASSIGN_OR_RETURN(const DeviceBuffer data, DeviceBuffer::Allocate(8, "data"));
    const MutableBuffer buffer{data.data(), 2, DType::kF32, MemoryKind::kCuda};
    GACCD_RETURN_IF_ERROR(
        CudaStatus(standin::Enqueue(stream.get(), "computation",
                                    [] { std::this_thread::sleep_for(milliseconds(100)); }, {}),
                   "enqueue"));
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(buffer, buffer, stream.handle()));
    (void)cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal);
    std::this_thread::sleep_for(milliseconds(50));
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(captured.get(), &graph), cudaSuccess);
    (void)cudaGraphDestroy(graph);
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream.get()), "wait"));
    return comm.Poll();
  });
  EXPECT_TRUE(outcomes[0].status.ok()) << outcomes[0].status.message();
}

TEST_F(NcclFailureTest, ReportsWrongArguments) {
  const auto outcomes = RunUntilAllFail(1, {}, [](Communicator& comm) -> Status {
    std::vector<float> host(2);
    GACCD_ASSIGN_OR_RETURN(const DeviceBuffer data, DeviceBuffer::Allocate(8, "data"));
    const MutableBuffer device{data.data(), 2, DType::kF32, MemoryKind::kCuda};
    const MutableBuffer bytes{data.data(), 2, DType::kU8, MemoryKind::kCuda};
    EXPECT_THAT(comm.AllReduceSum(device, View(std::span(host))),
                HasMessage(HasSubstr("'out' must be device memory, found host memory")));
    EXPECT_THAT(comm.AllReduceSum(View(std::span(host)), device),
                HasMessage(HasSubstr("'out' must be host memory, found device memory")));
    EXPECT_THAT(comm.AllReduceSum(bytes, bytes), HasMessage(HasSubstr("not summed")));
    EXPECT_THAT(comm.Broadcast(device, 1), HasMessage(HasSubstr("root must be 0..0")));
    return comm.Poll();
  });
  EXPECT_TRUE(outcomes[0].status.ok()) << outcomes[0].status.message();
}

}  // namespace
}  // namespace gaccd
