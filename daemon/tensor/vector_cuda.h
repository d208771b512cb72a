// Vectors of 16 bytes, the most efficient access size of a GPU thread. Values are f32, bf16 or fp16
// in memory and floats in registers. For kernels only, see daemon/device/cuda/launch.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "daemon/tensor/float_types.h"

namespace gaccd {

// Number of values of type T in 16 bytes.
template <typename T>
inline constexpr int kVectorWidth = 16 / static_cast<int>(sizeof(T));

// Whether `pointer` may be accessed 16 bytes at a time. True for null.
[[nodiscard]] inline bool IsVectorAligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

#if defined(__CUDACC__) || defined(GACCD_SIMT_EMULATION)

// Stops a test at a vector whose address is not a multiple of its size, as a GPU does.
template <std::size_t kBytes>
__device__ inline void CheckVector([[maybe_unused]] const void* address) {
#if defined(GACCD_SIMT_EMULATION)
  simt::CheckAlignment(address, kBytes);
#endif
}

// kStream: accessed once, so it should not evict other data from the cache.
enum class Use { kAgain, kStream };

// One value (kWidth 1) or whole 16-byte vectors of T in memory format.
template <typename T, int kWidth>
struct Raw {
  static_assert(kWidth % kVectorWidth<T> == 0);
  static constexpr int kWords = kWidth / kVectorWidth<T>;
  uint4 words[kWords];
};
template <typename T>
struct Raw<T, 1> {
  T value;
};

template <int kWidth, Use kUse, typename T>
__device__ inline Raw<T, kWidth> LoadRaw(const T* from) {
  Raw<T, kWidth> raw;
  if constexpr (kWidth == 1) {
    raw.value = *from;
  } else {
    CheckVector<16>(from);
#pragma unroll
    for (int w = 0; w < Raw<T, kWidth>::kWords; ++w) {
#if defined(__CUDA_ARCH__)
      const auto* word = reinterpret_cast<const uint4*>(from) + w;
      raw.words[w] = kUse == Use::kStream ? __ldcs(word) : *word;
#else
      std::memcpy(&raw.words[w], from + w * kVectorWidth<T>, 16);
#endif
    }
  }
  return raw;
}

template <Use kUse, typename T, int kWidth>
__device__ inline void StoreRaw(T* to, const Raw<T, kWidth>& raw) {
  if constexpr (kWidth == 1) {
    *to = raw.value;
  } else {
    CheckVector<16>(to);
#pragma unroll
    for (int w = 0; w < Raw<T, kWidth>::kWords; ++w) {
#if defined(__CUDA_ARCH__)
      auto* word = reinterpret_cast<uint4*>(to) + w;
      if constexpr (kUse == Use::kStream) {
        __stcs(word, raw.words[w]);
      } else {
        *word = raw.words[w];
      }
#else
      std::memcpy(to + w * kVectorWidth<T>, &raw.words[w], 16);
#endif
    }
  }
}

__device__ inline void UnpackWord(uint4 word, float* values, float) {
  values[0] = std::bit_cast<float>(word.x);
  values[1] = std::bit_cast<float>(word.y);
  values[2] = std::bit_cast<float>(word.z);
  values[3] = std::bit_cast<float>(word.w);
}
__device__ inline void UnpackWord(uint4 word, float* values, Bf16) {
  const std::uint32_t pairs[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = std::bit_cast<float>(pairs[i] << 16);
    values[2 * i + 1] = std::bit_cast<float>(pairs[i] & 0xffff0000U);
  }
}
__device__ inline void UnpackWord(uint4 word, float* values, Fp16) {
  const std::uint32_t pairs[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = ToFloat(Fp16{static_cast<std::uint16_t>(pairs[i])});
    values[2 * i + 1] = ToFloat(Fp16{static_cast<std::uint16_t>(pairs[i] >> 16)});
  }
}
__device__ inline uint4 PackWord(const float* values, float) {
  return {std::bit_cast<std::uint32_t>(values[0]), std::bit_cast<std::uint32_t>(values[1]),
          std::bit_cast<std::uint32_t>(values[2]), std::bit_cast<std::uint32_t>(values[3])};
}
template <typename Half>
__device__ inline uint4 PackWord(const float* values, Half) {
  return {PackPair<Half>(values[0], values[1]), PackPair<Half>(values[2], values[3]),
          PackPair<Half>(values[4], values[5]), PackPair<Half>(values[6], values[7])};
}

template <typename T, int kWidth>
__device__ inline void Unpack(const Raw<T, kWidth>& raw, float (&values)[kWidth]) {
  if constexpr (kWidth == 1) {
    values[0] = ToFloat(raw.value);
  } else {
#pragma unroll
    for (int w = 0; w < Raw<T, kWidth>::kWords; ++w) {
      UnpackWord(raw.words[w], values + w * kVectorWidth<T>, T{});
    }
  }
}

template <typename T, int kWidth>
__device__ inline Raw<T, kWidth> Pack(const float (&values)[kWidth]) {
  Raw<T, kWidth> raw;
  if constexpr (kWidth == 1) {
    raw.value = FromFloat<T>(values[0]);
  } else {
#pragma unroll
    for (int w = 0; w < Raw<T, kWidth>::kWords; ++w) {
      raw.words[w] = PackWord(values + w * kVectorWidth<T>, T{});
    }
  }
  return raw;
}

template <Use kUse, typename T, int kWidth>
__device__ inline void Load(const T* from, float (&values)[kWidth]) {
  Unpack(LoadRaw<kWidth, kUse>(from), values);
}
template <Use kUse, typename T, int kWidth>
__device__ inline void Store(T* to, const float (&values)[kWidth]) {
  StoreRaw<kUse>(to, Pack<T, kWidth>(values));
}

#endif

}  // namespace gaccd
