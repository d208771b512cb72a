#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/standin/test_kernels.h"
#include "tests/standin/test_support.h"

namespace gaccd::standin_test {
namespace {

using StreamsTest = StandInTest;
using StreamsDeathTest = StreamsTest;

constexpr int kSize = 1000;

// Work of a stream that lasts until the test opens it, however long the test itself takes.
class Gate {
 public:
  void Open() { open_ = true; }
  [[nodiscard]] cudaError_t HoldUp(cudaStream_t stream) {
    const cudaHostFn_t wait = [](void* gate) {
      while (!static_cast<Gate*>(gate)->open_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    return cudaLaunchHostFunc(stream, wait, this);
  }

 private:
  std::atomic<bool> open_ = false;
};

TEST_F(StreamsTest, RunsWorkOfOneStreamInOrder) {
  standin::SetDelays(1, 300);
  const Stream stream;
  const OnDevice<float> x(std::vector<float>(kSize, 1.0F));
  const OnDevice<float> y(std::vector<float>(kSize, 0.0F));
  for (int i = 0; i < 20; ++i) {  // y = 2 (y + x), 20 times, must not be y = 2 y + x
    ASSERT_TRUE(Axpy(stream, kSize, 1.0F, x.data(), y.data()).ok());
    ASSERT_TRUE(Axpy(stream, kSize, 1.0F, y.data(), y.data()).ok());
  }
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(y.Values(), std::vector<float>(kSize, 2.0F * (1 << 20) - 2.0F));
}

// A producer and a consumer on two streams, with an event between them or without.
std::vector<float> ProduceAndConsume(std::uint64_t seed, bool wait) {
  standin::SetDelays(seed, 2000);
  const Stream producer;
  const Stream consumer;
  const Event ready;
  const OnDevice<float> one(std::vector<float>(kSize, 1.0F));
  const OnDevice<float> x(std::vector<float>(kSize, 0.0F));
  const OnDevice<float> y(std::vector<float>(kSize, 0.0F));
  EXPECT_TRUE(Axpy(producer, kSize, 7.0F, one.data(), x.data()).ok());
  EXPECT_CUDA(cudaEventRecord(ready, producer));
  if (wait) {
    EXPECT_CUDA(cudaStreamWaitEvent(consumer, ready, 0));
  }
  EXPECT_TRUE(Axpy(consumer, kSize, 1.0F, x.data(), y.data()).ok());
  EXPECT_CUDA(cudaDeviceSynchronize());
  return y.Values();
}

TEST_F(StreamsTest, EventOrdersTwoStreams) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(ProduceAndConsume(seed, true), std::vector<float>(kSize, 7.0F)) << seed;
  }
}

// The point of it all.
#if defined(GACCD_SANITIZE_THREAD)
TEST_F(StreamsDeathTest, MissingWaitIsADataRace) {
  const auto run = [](bool wait) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) (void)ProduceAndConsume(seed, wait);
    std::exit(0);
  };
  EXPECT_EXIT(run(false), testing::ExitedWithCode(66), "ThreadSanitizer: data race");
  EXPECT_EXIT(run(true), testing::ExitedWithCode(0), "");
}
#elif !defined(GACCD_SANITIZED)
TEST_F(StreamsTest, DetectsMissingWait) {
  bool visible = false;
  for (std::uint64_t seed = 1; seed <= 500 && !visible; ++seed) {
    visible = ProduceAndConsume(seed, false) != std::vector<float>(kSize, 7.0F);
  }
  EXPECT_TRUE(visible);
}
#endif

TEST_F(StreamsTest, WaitRefersToPrecedingRecord) {
  Gate gate;
  const Stream slow;
  const Stream other;
  const Event event;
  EXPECT_CUDA(cudaStreamWaitEvent(other, event, 0));  // never recorded: no wait
  EXPECT_CUDA(cudaStreamSynchronize(other));
  EXPECT_CUDA(cudaEventRecord(event, slow));
  EXPECT_CUDA(cudaStreamWaitEvent(other, event, 0));
  EXPECT_CUDA(gate.HoldUp(slow));
  EXPECT_CUDA(cudaEventRecord(event, slow));  // later than the wait: does not concern it
  EXPECT_CUDA(cudaStreamSynchronize(other));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady) << "as the real one does";
  EXPECT_EQ(cudaStreamQuery(slow), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  gate.Open();
  EXPECT_CUDA(cudaEventSynchronize(event));
  EXPECT_CUDA(cudaEventQuery(event));
  EXPECT_CUDA(cudaStreamQuery(slow));
}

TEST_F(StreamsTest, EventsMeasureTime) {
  Gate gate;
  const Stream stream;
  const Event start(cudaEventDefault);
  const Event stop(cudaEventDefault);
  const Event untimed;
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, stop), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaEventRecord(start, stream));
  EXPECT_CUDA(gate.HoldUp(stream));
  EXPECT_CUDA(cudaEventRecord(stop, stream));
  EXPECT_CUDA(cudaEventRecord(untimed, stream));
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, stop), cudaErrorNotReady);
  while (cudaEventQuery(start) != cudaSuccess) std::this_thread::yield();
  (void)cudaGetLastError();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  gate.Open();
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaEventElapsedTime(&milliseconds, start, stop));
  EXPECT_GE(milliseconds, 30);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, untimed), cudaErrorInvalidResourceHandle);
}

TEST_F(StreamsTest, NullStreamWaitsOnlyForBlockingStreams) {
  Gate gate;
  cudaStream_t blocking = nullptr;
  EXPECT_CUDA(cudaStreamCreate(&blocking));
  const Stream nonblocking;
  std::atomic<int> done{0};
  struct Part {
    std::atomic<int>* done;
    int value;
  } first{&done, 1}, second{&done, 2};
  const cudaHostFn_t add = [](void* part) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    *static_cast<Part*>(part)->done += static_cast<Part*>(part)->value;
  };
  const OnDevice<int> memory(std::vector<int>(1));
  EXPECT_CUDA(cudaLaunchHostFunc(blocking, add, &first));
  EXPECT_CUDA(cudaMemset(memory.data(), 0, 4));
  EXPECT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(done, 1);
  EXPECT_CUDA(gate.HoldUp(nonblocking));
  EXPECT_CUDA(cudaLaunchHostFunc(nonblocking, add, &second));
  EXPECT_CUDA(cudaMemset(memory.data(), 0, 4));
  EXPECT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(done, 1);
  gate.Open();
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(done, 3);
  EXPECT_CUDA(cudaStreamDestroy(blocking));
}

TEST_F(StreamsTest, CountsHostWaits) {
  const Stream stream;
  const Event event;
  std::vector<float> pageable(kSize);
  void* pinned = nullptr;
  EXPECT_CUDA(cudaHostAlloc(&pinned, kSize * 4, cudaHostAllocDefault));
  const OnDevice<float> x(pageable);
  const auto waits = [](auto&& call) {
    const std::int64_t before = standin::Count().host_waits;
    EXPECT_CUDA(call());
    return standin::Count().host_waits - before;
  };
  const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
    return waits([&] { return cudaMemcpyAsync(to, from, kSize * 4, kind, stream); });
  };
  EXPECT_EQ(copy(x.data(), pinned, cudaMemcpyHostToDevice), 0);
  EXPECT_EQ(copy(pinned, x.data(), cudaMemcpyDeviceToHost), 0);
  EXPECT_EQ(copy(x.data(), pageable.data(), cudaMemcpyHostToDevice), 1);
  EXPECT_EQ(copy(pageable.data(), x.data(), cudaMemcpyDeviceToHost), 1);
  EXPECT_EQ(waits([&] { return cudaEventRecord(event, stream); }), 0);
  EXPECT_EQ(waits([&] { return cudaStreamWaitEvent(stream, event, 0); }), 0);
  EXPECT_EQ(waits([&] { return cudaEventSynchronize(event); }), 1);
  EXPECT_EQ(waits([&] { return cudaStreamSynchronize(stream); }), 1);
  EXPECT_EQ(waits([&] { return cudaDeviceSynchronize(); }), 1);
  EXPECT_EQ(waits([&] { return cudaEventQuery(event); }), 0);
  EXPECT_EQ(standin::Count().queries, 1);
  EXPECT_CUDA(cudaFreeHost(pinned));
}

TEST_F(StreamsTest, DevicesHaveSeparateStreamsAndMemory) {
  standin::Reset({.devices = 2});
  int count = 0;
  EXPECT_CUDA(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  (void)cudaGetLastError();
  cudaDeviceProp properties[2];
  for (int device = 0; device < 2; ++device) {
    EXPECT_CUDA(cudaGetDeviceProperties(&properties[device], device));
  }
  EXPECT_STREQ(properties[1].name, "stand-in GPU 1");
  EXPECT_NE(std::memcmp(&properties[0].uuid, &properties[1].uuid, 16), 0);
  EXPECT_NE(properties[0].pciBusID, properties[1].pciBusID);
  EXPECT_CUDA(cudaSetDevice(1));
  std::thread([] {
    int device = -1;
    EXPECT_CUDA(cudaGetDevice(&device));
    EXPECT_EQ(device, 0) << "of each thread";
  }).join();
  const Stream stream;
  const OnDevice<int> out(std::vector<int>(64));
  EXPECT_EQ(standin::LiveBytes(0), 0);
  EXPECT_EQ(standin::LiveBytes(1), 256);
  EXPECT_TRUE(standin::IsDeviceMemory(out.data(), 256));
  EXPECT_CUDA(cudaSetDevice(0));
  EXPECT_FALSE(standin::IsDeviceMemory(out.data(), 256));
  EXPECT_FALSE(Reverse(stream, 64, out.data(), out.data()).ok()) << "another device's stream";
  (void)cudaGetLastError();
  const Stream here;
  EXPECT_DEATH((void)Reverse(here, 64, out.data(), out.data()),
               "runs on device 0 and gets memory of device 1");
  EXPECT_CUDA(cudaSetDevice(1));
}

TEST_F(StreamsDeathTest, AbortsOnHandleMistakes) {
  cudaStream_t stream = nullptr;
  EXPECT_CUDA(cudaStreamCreate(&stream));
  EXPECT_CUDA(cudaStreamDestroy(stream));
  EXPECT_DEATH((void)cudaStreamSynchronize(stream), "does not exist");
  cudaEvent_t event = nullptr;
  EXPECT_CUDA(cudaEventCreate(&event));
  EXPECT_CUDA(cudaEventDestroy(event));
  EXPECT_DEATH((void)cudaEventQuery(event), "does not exist");
  const cudaHostFn_t calls_cuda = [](void*) {
    (void)cudaGetLastError(), (void)cudaDeviceSynchronize();
  };
  EXPECT_DEATH(
      {
        (void)cudaLaunchHostFunc(nullptr, calls_cuda, nullptr);
        (void)cudaDeviceSynchronize();
      },
      "cudaDeviceSynchronize is called by a host function");
}

}  // namespace
}  // namespace gaccd::standin_test
