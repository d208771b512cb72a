#include "collectives/comm/sum.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "collectives/base/simd.h"

namespace gaccd {
namespace {

// Small enough that a block and its sums stay in the first-level cache.
constexpr std::size_t kBlock = 2048;
constexpr std::size_t kLineElements = 16;

GACCD_SIMD_CLONES void Add(double* sum, const float* in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += static_cast<double>(in[i]);
}
GACCD_SIMD_CLONES void Add(double* sum, const double* in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += in[i];
}
// Unsigned, because signed overflow is undefined.
GACCD_SIMD_CLONES void Add(std::uint32_t* sum, const std::uint32_t* in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += in[i];
}
GACCD_SIMD_CLONES void Add(std::uint64_t* sum, const std::uint64_t* in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += in[i];
}
GACCD_SIMD_CLONES void Convert(float* out, const double* sum, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(sum[i]);
}

// One input is copied bit by bit, so that a group of one changes nothing, not even a NaN.
void CopyRange(const void* input, std::size_t in_first, std::span<void* const> outputs,
               std::size_t out_first, std::size_t count, std::size_t width) {
  for (void* output : outputs) {
    const auto* from = static_cast<const std::byte*>(input) + in_first * width;
    auto* to = static_cast<std::byte*>(output) + out_first * width;
    if (from != to) std::memcpy(to, from, count * width);
  }
}

template <typename T, typename Sum>
void SumTyped(std::span<const void* const> inputs, std::size_t in_first,
              std::span<void* const> outputs, std::size_t out_first, std::size_t count) {
  std::array<Sum, kBlock> sum;
  std::array<T, kBlock> rounded;
  for (std::size_t done = 0; done < count; done += kBlock) {
    const std::size_t part = std::min(kBlock, count - done);
    // Starts from the first input and not from +0, which would turn a sum of -0 into +0.
    const T* first = static_cast<const T*>(inputs[0]) + in_first + done;
    for (std::size_t i = 0; i < part; ++i) sum[i] = static_cast<Sum>(first[i]);
    for (const void* input : inputs.subspan(1)) {
      Add(sum.data(), static_cast<const T*>(input) + in_first + done, part);
    }
    const T* result = nullptr;
    if constexpr (std::is_same_v<T, Sum>) {
      result = sum.data();
    } else {
      Convert(rounded.data(), sum.data(), part);
      result = rounded.data();
    }
    for (void* output : outputs) {
      std::memcpy(static_cast<T*>(output) + out_first + done, result, part * sizeof(T));
    }
  }
}

}  // namespace

void SumRange(DType dtype, std::span<const void* const> inputs, std::size_t in_first,
              std::span<void* const> outputs, std::size_t out_first, std::size_t count) {
  if (count == 0) return;
  if (inputs.size() == 1) {
    return CopyRange(inputs[0], in_first, outputs, out_first, count, SizeOf(dtype));
  }
  switch (dtype) {
    case DType::kF32:
      return SumTyped<float, double>(inputs, in_first, outputs, out_first, count);
    case DType::kF64:
      return SumTyped<double, double>(inputs, in_first, outputs, out_first, count);
    case DType::kI32:
      return SumTyped<std::uint32_t, std::uint32_t>(inputs, in_first, outputs, out_first, count);
    case DType::kI64:
      return SumTyped<std::uint64_t, std::uint64_t>(inputs, in_first, outputs, out_first, count);
    case DType::kU8:
    case DType::kBF16:
      return;
  }
}

Slice SliceOf(std::size_t count, int index, int workers) {
  const auto n = static_cast<std::size_t>(workers);
  const std::size_t lines = (count + kLineElements - 1) / kLineElements;
  const auto begin_of = [&](std::size_t i) {
    // lines * i could overflow; whole lines per worker plus the spread rest cannot.
    const std::size_t line = lines / n * i + lines % n * i / n;
    return std::min(count, line * kLineElements);
  };
  const std::size_t begin = begin_of(static_cast<std::size_t>(index));
  return {begin, begin_of(static_cast<std::size_t>(index) + 1) - begin};
}

}  // namespace gaccd
