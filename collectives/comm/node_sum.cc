#include "collectives/comm/node_sum.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "collectives/base/simd.h"

namespace gaccd {
namespace {

// Up to this many copies are summed in registers in one pass.
constexpr std::size_t kMostFused = 4;
// More copies go through a block that stays in the L1 cache.
constexpr std::size_t kBlockBytes = 8192;
constexpr std::size_t kLineBytes = 64;

// Independent iterations: the copies are different memory, or the very same element is read and
// then written.
template <typename T, std::size_t kCopies>
GACCD_SIMD_CLONES void SumFused(T* const* copies, std::size_t n, T* out) {
  std::array<const T*, kCopies> in;
  for (std::size_t r = 0; r < kCopies; ++r) in[r] = copies[r];
  GACCD_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < n; ++i) {
    T sum = in[0][i];
    for (std::size_t r = 1; r < kCopies; ++r) sum = static_cast<T>(sum + in[r][i]);
    out[i] = sum;
  }
}

template <typename T, std::size_t kCopies>
GACCD_SIMD_CLONES void SumFusedToAll(T* const* copies, std::size_t n) {
  std::array<T*, kCopies> all;
  for (std::size_t r = 0; r < kCopies; ++r) all[r] = copies[r];
  GACCD_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < n; ++i) {
    T sum = all[0][i];
    for (std::size_t r = 1; r < kCopies; ++r) sum = static_cast<T>(sum + all[r][i]);
    for (std::size_t r = 0; r < kCopies; ++r) all[r][i] = sum;
  }
}

template <typename T>
GACCD_SIMD_CLONES void Add(const T* in, std::size_t n, T* sum) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < n; ++i) sum[i] = static_cast<T>(sum[i] + in[i]);
}

// The first kMostFused copies in one pass, the others added one by one: the same order.
template <typename T>
void SumBlock(T* const* copies, std::size_t count, std::size_t n, T* out) {
  switch (count) {
    case 1:
      if (out != copies[0]) std::memcpy(out, copies[0], n * sizeof(T));
      return;
    case 2:
      return SumFused<T, 2>(copies, n, out);
    case 3:
      return SumFused<T, 3>(copies, n, out);
    default:
      SumFused<T, kMostFused>(copies, n, out);
      for (std::size_t r = kMostFused; r < count; ++r) Add(copies[r], n, out);
  }
}

template <typename T>
void SumToTyped(std::span<void* const> copies, Slice slice, T* out) {
  std::array<T*, kMostFused> fused{};
  alignas(kLineBytes) std::array<T, kBlockBytes / sizeof(T)> block;
  for (std::size_t done = 0; done < slice.count; done += block.size()) {
    const std::size_t n = std::min(block.size(), slice.count - done);
    const auto at = [&](std::size_t r) { return static_cast<T*>(copies[r]) + slice.first + done; };
    for (std::size_t r = 0; r < std::min(copies.size(), kMostFused); ++r) fused[r] = at(r);
    if (copies.size() <= kMostFused) {
      SumBlock(fused.data(), copies.size(), n, out + done);
      continue;
    }
    // Built aside, because `out` may be a copy that is still to be added.
    SumBlock(fused.data(), kMostFused, n, block.data());
    for (std::size_t r = kMostFused; r < copies.size(); ++r) Add(at(r), n, block.data());
    std::memcpy(out + done, block.data(), n * sizeof(T));
  }
}

template <typename T>
void SumToAllTyped(std::span<void* const> copies, Slice slice) {
  std::array<T*, kMostFused> all{};
  for (std::size_t r = 0; r < std::min(copies.size(), kMostFused); ++r) {
    all[r] = static_cast<T*>(copies[r]) + slice.first;
  }
  switch (copies.size()) {
    case 0:
    case 1:
      return;
    case 2:
      return SumFusedToAll<T, 2>(all.data(), slice.count);
    case 3:
      return SumFusedToAll<T, 3>(all.data(), slice.count);
    case 4:
      return SumFusedToAll<T, 4>(all.data(), slice.count);
    default:
      break;
  }
  alignas(kLineBytes) std::array<T, kBlockBytes / sizeof(T)> block;
  for (std::size_t done = 0; done < slice.count; done += block.size()) {
    const Slice part = {slice.first + done, std::min(block.size(), slice.count - done)};
    SumToTyped<T>(copies, part, block.data());
    for (void* copy : copies) {
      std::memcpy(static_cast<T*>(copy) + part.first, block.data(), part.count * sizeof(T));
    }
  }
}

// Calls f with a value of the type to add in. Unsigned for integers: their overflow is defined.
template <typename F>
void WithSumType(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kF64:
      return f(double{});
    case DType::kI32:
      return f(std::uint32_t{});
    case DType::kI64:
      return f(std::uint64_t{});
    case DType::kU8:
    case DType::kBF16:  // CheckSummable() refuses both
      return f(std::uint8_t{});
  }
}

}  // namespace

void SumToAll(DType dtype, std::span<void* const> copies, Slice slice) {
  WithSumType(dtype, [&]<typename T>(T) { SumToAllTyped<T>(copies, slice); });
}

void SumTo(DType dtype, std::span<void* const> copies, Slice slice, void* out) {
  WithSumType(dtype, [&]<typename T>(T) { SumToTyped<T>(copies, slice, static_cast<T*>(out)); });
}

}  // namespace gaccd
