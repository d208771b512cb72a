#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/standin/test_kernels.h"
#include "tests/standin/test_support.h"
#include "tests/support/status_matchers.h"

namespace gaccd::standin_test {
namespace {

using MemoryTest = StandInTest;
using MemoryDeathTest = MemoryTest;

TEST_F(MemoryTest, RecoversFromOutOfMemory) {
  standin::Reset({.memory_bytes = 1 << 20});
  void* first = nullptr;
  void* second = nullptr;
  EXPECT_CUDA(cudaMalloc(&first, 1 << 19));
  EXPECT_EQ(cudaMalloc(&second, (1 << 19) + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_CUDA(cudaGetLastError());
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_CUDA(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(free, 1U << 19);
  EXPECT_EQ(total, 1U << 20);
  EXPECT_CUDA(cudaFree(first));
  EXPECT_CUDA(cudaMalloc(&second, 1 << 20));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second) % 256, 0U);
  EXPECT_CUDA(cudaFree(second));
  EXPECT_CUDA(cudaFree(nullptr));
}

TEST_F(MemoryTest, NewMemoryIsNotZero) {
  void* memory = nullptr;
  EXPECT_CUDA(cudaMalloc(&memory, 4));
  unsigned value = 0;
  EXPECT_CUDA(cudaMemcpy(&value, memory, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(value, 0xffffffffU);
  EXPECT_CUDA(cudaMemset(memory, 0, 4));
  EXPECT_CUDA(cudaMemcpy(&value, memory, 4, cudaMemcpyDefault));
  EXPECT_EQ(value, 0U);
  EXPECT_CUDA(cudaFree(memory));
}

TEST_F(MemoryTest, CopiesCheckMemoryKind) {
  const Stream stream;
  const OnDevice<int> x(std::vector<int>{1, 2, 3});
  const OnDevice<int> y(std::vector<int>(3));
  std::vector<int> host(3);
  EXPECT_EQ(cudaMemcpyAsync(host.data(), x.data(), 12, cudaMemcpyHostToDevice, stream),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(x.data(), host.data(), 12, cudaMemcpyDeviceToDevice, stream),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, 12, stream), cudaErrorInvalidValue);
  (void)cudaGetLastError();
  EXPECT_CUDA(cudaMemcpyAsync(y.data(), x.data(), 12, cudaMemcpyDeviceToDevice, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(y.Values(), (std::vector<int>{1, 2, 3}));
}

TEST_F(MemoryTest, PageableMemoryMayBeChangedAfterCall) {
  standin::SetDelays(3, 2000);
  const Stream stream;
  const OnDevice<int> x(std::vector<int>(1));
  int* pinned = nullptr;
  EXPECT_CUDA(cudaMallocHost(reinterpret_cast<void**>(&pinned), 4));
  for (int i = 0; i < 10; ++i) {
    int ordinary = i;
    EXPECT_CUDA(cudaMemcpyAsync(x.data(), &ordinary, 4, cudaMemcpyHostToDevice, stream));
    ordinary = -1;
    EXPECT_CUDA(cudaMemcpyAsync(pinned, x.data(), 4, cudaMemcpyDeviceToHost, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(*pinned, i);
  }
  EXPECT_CUDA(cudaFreeHost(pinned));
}

TEST_F(MemoryTest, CopiesRowsWithGaps) {
  const Stream stream;
  const OnDevice<int> x(std::vector<int>{1, 2, 3, 4, 5, 6});
  const OnDevice<int> y(std::vector<int>(8));
  EXPECT_CUDA(
      cudaMemcpy2DAsync(y.data(), 16, x.data(), 12, 8, 2, cudaMemcpyDeviceToDevice, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(y.Values(), (std::vector<int>{1, 2, 0, 0, 4, 5, 0, 0}));
}

TEST_F(MemoryTest, RegisteredMemoryCountsAsPageLocked) {
  const Stream stream;
  std::vector<int> host{4, 5};
  const OnDevice<int> x(std::vector<int>(2));
  EXPECT_CUDA(cudaHostRegister(host.data(), 8, cudaHostRegisterDefault));
  EXPECT_EQ(cudaHostRegister(host.data(), 8, cudaHostRegisterDefault),
            cudaErrorHostMemoryAlreadyRegistered);
  (void)cudaGetLastError();
  cudaPointerAttributes attributes{};
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, host.data() + 1));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  const std::int64_t before = standin::Count().host_waits;
  EXPECT_CUDA(cudaMemcpyAsync(x.data(), host.data(), 8, cudaMemcpyHostToDevice, stream));
  EXPECT_EQ(standin::Count().host_waits, before);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(x.Values(), host);
  EXPECT_CUDA(cudaHostUnregister(host.data()));
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, host.data()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, x.data()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
}

TEST_F(MemoryTest, InjectedErrors) {
  void* memory = nullptr;
  standin::FailCall("cudaMalloc", 2, cudaErrorMemoryAllocation);
  EXPECT_CUDA(cudaMalloc(&memory, 64));
  void* refused = nullptr;
  EXPECT_EQ(cudaMalloc(&refused, 64), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_CUDA(cudaMalloc(&refused, 64));
  EXPECT_CUDA(cudaFree(refused));
  standin::FailCall("kernel", 1, cudaErrorLaunchOutOfResources);
  EXPECT_THAT(Reverse(nullptr, 32, static_cast<int*>(memory), static_cast<int*>(memory)),
              HasMessage(testing::HasSubstr("cudaErrorLaunchOutOfResources")));
  EXPECT_CUDA(cudaGetLastError());
  EXPECT_CUDA(cudaFree(memory));
}

TEST_F(MemoryTest, FailedKernelDisablesDevice) {
  standin::Reset({.devices = 2});
  {
    const Stream stream;
    const OnDevice<float> x(std::vector<float>(32, 1.0F));
    const OnDevice<float> y(std::vector<float>(32));
    standin::FailKernel(2, cudaErrorIllegalAddress);
    ASSERT_TRUE(Axpy(stream, 32, 1.0F, x.data(), y.data()).ok());
    (void)Axpy(stream, 32, 1.0F, x.data(), y.data());  // fails later, when it runs
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    EXPECT_FALSE(Axpy(stream, 32, 1.0F, x.data(), y.data()).ok());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    (void)cudaGetLastError();
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorIllegalAddress) << "again and again";
    EXPECT_EQ(y.data()[0], 1.0F) << "only the first one ran";
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(cudaSetDevice(0), cudaErrorIllegalAddress);
  }
  EXPECT_EQ(standin::LiveBytes(0), 0) << "memory is taken back all the same";
  standin::Reset();
  EXPECT_CUDA(cudaDeviceSynchronize());
}

TEST_F(MemoryTest, WithoutDriverOrDevice) {
  int count = 7;
  int version = 7;
  void* memory = nullptr;
  standin::Reset({.driver = standin::Driver::kMissing});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, 0);
  EXPECT_CUDA(cudaDriverGetVersion(&version));
  EXPECT_EQ(version, 0);
  EXPECT_CUDA(cudaRuntimeGetVersion(&version));
  EXPECT_EQ(version, CUDART_VERSION);
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorInsufficientDriver);
  standin::Reset({.driver = standin::Driver::kNoDevice});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice");
  standin::Reset();
}

void* Allocated(std::size_t bytes) {
  void* memory = nullptr;
  EXPECT_CUDA(cudaMalloc(&memory, bytes));
  return memory;
}

TEST_F(MemoryDeathTest, AbortsOnMemoryMistakes) {
  int on_stack = 0;
  EXPECT_DEATH((void)cudaFree(&on_stack), "cudaFree of a pointer that was never allocated");
  EXPECT_DEATH(
      {
        void* memory = Allocated(8);
        (void)cudaFree(memory);
        (void)cudaFree(memory);
      },
      "cudaFree twice");
  EXPECT_DEATH((void)cudaFreeHost(Allocated(8)), "cudaFreeHost of device memory");
  EXPECT_DEATH((void)cudaMemset(Allocated(8), 0, 9), "9 bytes from offset 0 of device memory");
  EXPECT_DEATH(
      {
        void* memory = Allocated(8);
        (void)cudaFree(memory);
        (void)cudaMemcpy(&on_stack, memory, 4, cudaMemcpyDeviceToHost);
      },
      "'cudaMemcpy' uses freed device memory");
  EXPECT_DEATH(
      {
        auto* memory = static_cast<volatile int*>(Allocated(8));
        (void)cudaFree(const_cast<int*>(memory));
        on_stack = *memory;  // by the host, or by a kernel through a structure
      },
      "");
}

TEST_F(MemoryDeathTest, AbortsOnFreeOfMemoryInUse) {
  const cudaHostFn_t sleep = [](void*) { std::this_thread::sleep_for(std::chrono::minutes(1)); };
  EXPECT_DEATH(
      {
        int* memory = static_cast<int*>(Allocated(256));
        (void)cudaLaunchHostFunc(nullptr, sleep, nullptr);
        (void)Reverse(nullptr, 32, memory, memory);
        (void)cudaFree(memory);
      },
      "which a stream still uses .'reverse'.");
}

TEST_F(MemoryDeathTest, NamesLeaks) {
  EXPECT_EXIT(
      {
        (void)Allocated(12);
        std::exit(0);
      },
      testing::ExitedWithCode(66), "left at exit:.*device memory no. 1 of 12 bytes");
  EXPECT_DEATH(
      {
        (void)Allocated(12);
        standin::Reset();
      },
      "left at Reset");
}

}  // namespace
}  // namespace gaccd::standin_test
