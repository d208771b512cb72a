#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/standin/test_kernels.h"
#include "tests/standin/test_support.h"

namespace gaccd::standin_test {
namespace {

using GraphTest = StandInTest;
using GraphDeathTest = GraphTest;

constexpr int kNodeSize = 500;
constexpr auto kLocal = cudaStreamCaptureModeThreadLocal;

class Executable {
 public:
  explicit Executable(cudaGraph_t graph) {
    EXPECT_CUDA(cudaGraphInstantiate(&executable_, graph, 0));
    EXPECT_CUDA(cudaGraphDestroy(graph));  // not needed any more
  }
  ~Executable() { (void)cudaGraphExecDestroy(executable_); }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  operator cudaGraphExec_t() const { return executable_; }  // NOLINT: reads as the handle it is

 private:
  cudaGraphExec_t executable_ = nullptr;
};

cudaGraph_t End(cudaStream_t stream, std::size_t nodes) {
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
  std::size_t count = 0;
  EXPECT_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, nodes);
  return graph;
}

class Vectors {
 public:
  Vectors()
      : x(std::vector<float>(kNodeSize, 1.0F)),
        y(std::vector<float>(kNodeSize, 0.0F)),
        z(y.Values()) {}
  const OnDevice<float> x;
  const OnDevice<float> y;
  const OnDevice<float> z;
};

// to += a * from
void Add(cudaStream_t stream, float a, const OnDevice<float>& from, const OnDevice<float>& to) {
  EXPECT_TRUE(Axpy(stream, kNodeSize, a, from.data(), to.data()).ok());
}

std::vector<float> All(float value) { return std::vector<float>(kNodeSize, value); }

TEST_F(GraphTest, RunsOnlyAtLaunch) {
  const Vectors v;
  const Stream stream;
  cudaStreamCaptureStatus status{};
  EXPECT_CUDA(cudaStreamBeginCapture(stream, kLocal));
  EXPECT_CUDA(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_CUDA(cudaMemsetAsync(v.y.data(), 0, kNodeSize * 4, stream));
  Add(stream, 3.0F, v.x, v.y);
  Add(stream, 1.0F, v.y, v.z);
  const Executable graph(End(stream, 3));
  EXPECT_CUDA(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(v.z.Values(), All(0));
  for (int i = 0; i < 5; ++i) EXPECT_CUDA(cudaGraphLaunch(graph, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(v.z.Values(), All(15));
  EXPECT_EQ(standin::Count().graph_launches, 5);
  EXPECT_EQ(standin::Count().graph_nodes, 15);
}

// y += x on a branch, z = 2 z on the main one, then z += y: every other order gives another z.
cudaGraph_t ForkAndJoin(const Vectors& v, cudaStream_t main, cudaStream_t branch, bool wait) {
  const Event fork;
  const Event join;
  EXPECT_CUDA(cudaStreamBeginCapture(main, kLocal));
  EXPECT_CUDA(cudaEventRecord(fork, main));
  EXPECT_CUDA(cudaStreamWaitEvent(branch, fork, 0));
  Add(branch, 1.0F, v.x, v.y);
  EXPECT_CUDA(cudaEventRecord(join, branch));
  Add(main, 1.0F, v.z, v.z);
  if (wait) {
    EXPECT_CUDA(cudaStreamWaitEvent(main, join, 0));
  }
  Add(main, 1.0F, v.y, v.z);
  if (!wait) {
    EXPECT_CUDA(cudaStreamWaitEvent(main, join, 0));
  }
  return End(main, 3);
}

TEST_F(GraphTest, JoinsBranchesByEvents) {
  const Stream main;
  const Stream branch;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Vectors v;
    const Executable graph(ForkAndJoin(v, main, branch, true));
    standin::SetDelays(seed, 1000);
    for (int i = 0; i < 3; ++i) EXPECT_CUDA(cudaGraphLaunch(graph, main));
    EXPECT_CUDA(cudaStreamSynchronize(main));
    EXPECT_EQ(v.z.Values(), All(2 * (2 * 1 + 2) + 3));
  }
}

#if !defined(GACCD_SANITIZED)
TEST_F(GraphTest, DetectsMissingEdge) {
  const Stream main;
  const Stream branch;
  bool visible = false;
  for (std::uint64_t seed = 1; seed <= 500 && !visible; ++seed) {
    const Vectors v;
    const Executable graph(ForkAndJoin(v, main, branch, false));
    standin::SetDelays(seed, 2000);
    EXPECT_CUDA(cudaGraphLaunch(graph, main));
    EXPECT_CUDA(cudaStreamSynchronize(main));
    visible = v.z.Values() != All(1);
  }
  EXPECT_TRUE(visible);
}
#endif

TEST_F(GraphTest, LaunchesAreOrderedOnTwoStreams) {
  standin::SetDelays(5, 500);
  const Vectors v;
  const Stream one;
  const Stream two;
  EXPECT_CUDA(cudaStreamBeginCapture(one, kLocal));
  Add(one, 1.0F, v.z, v.z);  // z = 2 z
  Add(one, 1.0F, v.x, v.z);  // z = z + 1
  const Executable graph(End(one, 2));
  for (int i = 0; i < 5; ++i) {
    EXPECT_CUDA(cudaGraphLaunch(graph, one));
    EXPECT_CUDA(cudaGraphLaunch(graph, two));
  }
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(v.z.Values(), All(1023));
}

TEST_F(GraphTest, ExternalEventsAreRecordedByEachLaunch) {
  standin::SetDelays(7, 1000);
  const Vectors v;
  const Stream main;
  const Stream other;
  const Event half(cudaEventDefault);
  const Event end(cudaEventDefault);
  EXPECT_CUDA(cudaStreamBeginCapture(main, kLocal));
  Add(main, 1.0F, v.x, v.y);
  EXPECT_CUDA(cudaEventRecordWithFlags(half, main, cudaEventRecordExternal));
  Add(main, 1.0F, v.x, v.x);
  EXPECT_CUDA(cudaEventRecordWithFlags(end, main, cudaEventRecordExternal));
  const Executable graph(End(main, 4));
  for (int i = 1; i <= 3; ++i) {
    EXPECT_CUDA(cudaGraphLaunch(graph, main));
    EXPECT_CUDA(cudaStreamWaitEvent(other, half, 0));
    Add(other, 1.0F, v.y, v.z);  // y is done
    EXPECT_CUDA(cudaStreamSynchronize(other));
    EXPECT_CUDA(cudaEventSynchronize(end));
    float milliseconds = -1;
    EXPECT_CUDA(cudaEventElapsedTime(&milliseconds, half, end));
    EXPECT_GE(milliseconds, 0);
  }
  EXPECT_EQ(v.y.Values(), All(1 + 2 + 4));
  EXPECT_EQ(v.z.Values(), All(1 + 3 + 7));
}

TEST_F(GraphTest, ForbiddenCallInvalidatesCapture) {
  const Vectors v;
  const Stream stream;
  const Event event;
  EXPECT_CUDA(cudaEventRecord(event, stream));
  std::vector<float> pageable(kNodeSize);
  void* memory = nullptr;
  const std::vector<std::pair<cudaError_t, std::function<cudaError_t()>>> forbidden = {
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaMalloc(&memory, 64); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaHostAlloc(&memory, 64, 0); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamSynchronize(stream); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamQuery(stream); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaDeviceSynchronize(); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaEventQuery(event); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaEventSynchronize(event); }},
      {cudaErrorStreamCaptureIsolation, [&] { return cudaStreamWaitEvent(stream, event, 0); }},
      {cudaErrorStreamCaptureUnsupported,
       [&] {
         return cudaMemcpyAsync(v.x.data(), pageable.data(), 4, cudaMemcpyHostToDevice, stream);
       }},
  };
  for (const auto& [error, call] : forbidden) {
    EXPECT_CUDA(cudaStreamBeginCapture(stream, kLocal));
    EXPECT_EQ(call(), error);
    EXPECT_EQ(cudaGetLastError(), error);
    EXPECT_FALSE(Axpy(stream, kNodeSize, 1.0F, v.x.data(), v.y.data()).ok());
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    (void)cudaGetLastError();
  }
  EXPECT_CUDA(cudaStreamSynchronize(stream));
}

TEST_F(GraphTest, AllowsOtherThreadsDuringThreadLocalCapture) {
  const Stream stream;
  for (const auto& [mode, expected] :
       {std::pair{cudaStreamCaptureModeThreadLocal, cudaSuccess},
        std::pair{cudaStreamCaptureModeGlobal, cudaErrorStreamCaptureUnsupported}}) {
    EXPECT_CUDA(cudaStreamBeginCapture(stream, mode));
    std::thread([expected = expected] {
      void* memory = nullptr;
      EXPECT_EQ(cudaMalloc(&memory, 64), expected);
      EXPECT_EQ(cudaFree(memory), expected);
    }).join();
    cudaGraph_t graph = nullptr;
    if (expected == cudaSuccess) {
      EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
      EXPECT_CUDA(cudaGraphDestroy(graph));
    } else {
      EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    }
  }
}

TEST_F(GraphTest, RefusesUnfinishedCapture) {
  const Vectors v;
  const Stream main;
  const Stream branch;
  const Event fork;
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaStreamBeginCapture(main, kLocal));
  EXPECT_CUDA(cudaEventRecord(fork, main));
  EXPECT_EQ(cudaEventQuery(fork), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamEndCapture(main, &graph), cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();  // else the next kernel tells it

  EXPECT_CUDA(cudaStreamBeginCapture(main, kLocal));
  EXPECT_CUDA(cudaEventRecord(fork, main));
  EXPECT_CUDA(cudaStreamWaitEvent(branch, fork, 0));
  Add(branch, 1.0F, v.x, v.y);
  EXPECT_EQ(cudaStreamEndCapture(main, &graph), cudaErrorStreamCaptureUnjoined);

  EXPECT_CUDA(cudaStreamBeginCapture(main, kLocal));
  EXPECT_CUDA(cudaEventRecord(fork, main));
  EXPECT_CUDA(cudaStreamWaitEvent(branch, fork, 0));
  EXPECT_EQ(cudaStreamEndCapture(branch, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(main, &graph), cudaErrorStreamCaptureInvalidated);

  EXPECT_CUDA(cudaStreamBeginCapture(main, kLocal));
  std::thread([&] {
    EXPECT_EQ(cudaStreamEndCapture(main, &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
  EXPECT_CUDA(cudaStreamEndCapture(main, &graph));
  EXPECT_CUDA(cudaGraphDestroy(graph));

  EXPECT_CUDA(cudaStreamBeginCapture(main, kLocal));
  EXPECT_CUDA(cudaStreamBeginCapture(branch, kLocal));
  EXPECT_CUDA(cudaEventRecord(fork, main));
  EXPECT_EQ(cudaStreamWaitEvent(branch, fork, 0), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(cudaStreamEndCapture(main, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(branch, &graph), cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();
}

TEST_F(GraphTest, CapturedKernelsCanFail) {
  const Vectors v;
  const Stream stream;
  EXPECT_CUDA(cudaStreamBeginCapture(stream, kLocal));
  for (int i = 0; i < 3; ++i) Add(stream, 1.0F, v.x, v.y);
  const Executable graph(End(stream, 3));
  standin::FailKernel(5, cudaErrorECCUncorrectable);
  EXPECT_CUDA(cudaGraphLaunch(graph, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  (void)cudaGraphLaunch(graph, stream);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorECCUncorrectable);
  EXPECT_EQ(v.y.data()[0], 4.0F);
}

TEST_F(GraphDeathTest, MemoryFreedAfterTheCapture) {
  EXPECT_DEATH(
      {
        const Stream stream;
        cudaGraph_t graph = nullptr;
        {
          const Vectors v;
          (void)cudaStreamBeginCapture(stream, kLocal);
          Add(stream, 1.0F, v.x, v.y);
          (void)cudaStreamEndCapture(stream, &graph);
        }
        const Executable executable(graph);
        (void)cudaGraphLaunch(executable, stream);
        (void)cudaStreamSynchronize(stream);
      },
      "'axpy' uses freed device memory");
}

}  // namespace
}  // namespace gaccd::standin_test
