// Memory and a stream for tests of kernels. The same tests run on a real GPU (linked with
// gaccd_gpu) and on the stand-in (gaccd_gpu_standin): they use nothing but the CUDA runtime.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "collectives/base/cuda.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/tensor/float_types.h"
#include "tests/support/graph_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {

namespace standin {
// From tests/standin/standin.h. Null in a program for a real GPU.
[[gnu::weak]] void SetDelays(std::uint64_t seed, int max_microseconds);
}  // namespace standin

// Copies to the GPU and waits: small copies are otherwise still under way when the call returns,
// and streams of ours do not wait for them.
inline void CopyToGpu(void* to, const void* from, std::size_t bytes) {
  EXPECT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// Values on the GPU. `shift`: elements before them, so that 16-byte alignment is lost.
template <typename T>
class GpuArray {
 public:
  explicit GpuArray(const std::vector<T>& values, std::size_t shift = 0)
      : shift_(shift), size_(values.size()) {
    buffer_ = ValueOrThrow(DeviceBuffer::Allocate((size_ + shift_) * sizeof(T), "a test's values"));
    CopyToGpu(data(), values.data(), size_ * sizeof(T));
  }
  explicit GpuArray(std::size_t size) : GpuArray(std::vector<T>(size)) {}

  [[nodiscard]] T* data() const { return buffer_.as<T>() + shift_; }
  // Waits for all streams.
  [[nodiscard]] std::vector<T> Values() const {
    std::vector<T> values(size_);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(values.data(), data(), size_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }
  [[nodiscard]] T Value() const { return Values()[0]; }

 private:
  std::size_t shift_;
  std::size_t size_;
  DeviceBuffer buffer_;
};

// f32, bf16 or fp16 values; on the host always floats.
class GpuFloats {
 public:
  GpuFloats(DType dtype, const std::vector<float>& values, std::size_t shift = 0)
      : dtype_(dtype),
        floats_(dtype == DType::kF32 ? values : std::vector<float>(1), shift),
        halves_(dtype == DType::kF32 ? std::vector<std::uint16_t>(1) : Rounded(dtype, values),
                shift) {}
  GpuFloats(DType dtype, std::size_t size) : GpuFloats(dtype, std::vector<float>(size)) {}

  [[nodiscard]] void* data() const {
    return dtype_ == DType::kF32 ? static_cast<void*>(floats_.data()) : halves_.data();
  }
  [[nodiscard]] std::vector<float> Values() const {
    if (dtype_ == DType::kF32) return floats_.Values();
    return WithHalf(dtype_, [this](auto t) {
      std::vector<float> values;
      for (const std::uint16_t bits : halves_.Values())
        values.push_back(ToFloat(decltype(t){bits}));
      return values;
    });
  }
  // The bits. REQUIRES: kBF16 or kFP16.
  static std::vector<std::uint16_t> Rounded(DType dtype, const std::vector<float>& values) {
    return WithHalf(dtype, [&](auto t) {
      std::vector<std::uint16_t> rounded;
      for (const float value : values) rounded.push_back(FromFloat<decltype(t)>(value).bits);
      return rounded;
    });
  }

 private:
  DType dtype_;
  GpuArray<float> floats_;
  GpuArray<std::uint16_t> halves_;
};

// The values as they are after storing them as `dtype`.
inline std::vector<float> Stored(DType dtype, std::vector<float> values) {
  WithFloat(dtype, [&](auto t) {
    for (float& value : values) value = ToFloat(FromFloat<decltype(t)>(value));
  });
  return values;
}
// Half a step of the type at 1: what rounding does to a value, relatively.
inline double RoundingError(DType dtype) {
  if (dtype == DType::kBF16) return 0x1p-8;
  return dtype == DType::kFP16 ? 0x1p-11 : 0x1p-24;
}
// The same where the steps no longer become smaller; f32, bf16: the smallest normal number.
inline double MinRoundingError(DType dtype) { return dtype == DType::kFP16 ? 0x1p-25 : 2e-38; }

// Rows `stride` apart, with `between` where no row is; and such rows without that.
inline std::vector<float> Spread(const std::vector<float>& rows, Matrix size, float between) {
  std::vector<float> spread;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    spread.push_back(rows[i]);
    if ((static_cast<std::int64_t>(i) + 1) % size.columns != 0) continue;
    spread.resize(spread.size() + static_cast<std::size_t>(size.row_stride() - size.columns),
                  between);
  }
  return spread;
}
inline std::vector<float> Gathered(const std::vector<float>& spread, Matrix size) {
  std::vector<float> rows;
  for (std::int64_t m = 0; m < size.rows; ++m) {
    const auto begin = spread.begin() + m * size.row_stride();
    rows.insert(rows.end(), begin, begin + size.columns);
  }
  return rows;
}

class KernelTest : public testing::Test {
 protected:
  void SetUp() override {
    stream_ = ValueOrThrow(CudaStream::Create());
    sums_ = std::make_unique<GpuArray<double>>(GridSums::kBytes / sizeof(double));
    // Few, so that the loops over what one launch does not cover at once are run, too.
    on_ = {stream_.get(), 2, GridSums::At(sums_->data())};
  }

  CudaStream stream_;
  std::unique_ptr<GpuArray<double>> sums_;
  KernelStream on_;
};

inline const std::size_t kOddSizes[] = {1, 3, 31, 33, 1000, 4097, 40000};
inline const DType kFloatTypes[] = {DType::kF32, DType::kBF16, DType::kFP16};

}  // namespace gaccd
