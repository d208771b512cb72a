// What the tests of the stand-ins share.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/standin/standin.h"

namespace gaccd::standin_test {

#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaSuccess)

// Memory of the current device with a copy of host values.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : size_(values.size()) {
    EXPECT_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), size_ * sizeof(T)));
    EXPECT_CUDA(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~OnDevice() { (void)cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  [[nodiscard]] T* data() const { return data_; }
  // Does not wait for any stream.
  [[nodiscard]] std::vector<T> Values() const {
    std::vector<T> values(size_);
    EXPECT_CUDA(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

class Stream {
 public:
  Stream() { EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() {
    (void)cudaStreamSynchronize(stream_);
    (void)cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT: reads as the handle it is

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDisableTiming) {
    EXPECT_CUDA(cudaEventCreateWithFlags(&event_, flags));
  }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }  // NOLINT: reads as the handle it is

 private:
  cudaEvent_t event_ = nullptr;
};

// A machine as new for every test.
class StandInTest : public testing::Test {
 protected:
  StandInTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    standin::Reset();
  }
};

}  // namespace gaccd::standin_test
