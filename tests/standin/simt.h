// SIMT on the CPU: what a kernel sees of CUDA when its .cu file is compiled as C++. The compiler
// includes this file before everything else and sets GACCD_SIMT_EMULATION (see
// daemon/device/cuda/launch.h, whose rules for kernels are checked here).
//
// The blocks of a kernel run one after another on the thread of their stream. The threads of a
// block are fibers, which change places only where they wait for each other. What the rules forbid
// stops the process with a message: a barrier that not all threads reach, a warp operation without
// all 32 lanes, lanes that meet in different operations, a pointer that is not memory of the GPU, a
// vector that is not aligned, a count of blocks without fences.
#pragma once

#include <cuda_runtime_api.h>
#include <math.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <type_traits>

#include "tests/sanitized.h"

// One copy for each thread of the machine is one for each block that runs.
#undef __shared__
#define __shared__ static thread_local
#define __launch_bounds__(...)

inline constinit thread_local uint3 threadIdx{0, 0, 0};
inline constinit thread_local uint3 blockIdx{0, 0, 0};
inline constinit thread_local uint3 blockDim{1, 1, 1};
inline constinit thread_local uint3 gridDim{1, 1, 1};
inline constexpr int warpSize = 32;

namespace gaccd::simt {

// Puts a kernel into the stream, as <<<>>> does: cudaGetLastError() returns errors. `pointers`
// (null ones are ignored) must point into memory of the GPU or page-locked memory, now and whenever
// it runs.
void Enqueue(cudaStream_t stream, unsigned blocks, unsigned threads, const char* what,
             std::function<void()> kernel, std::initializer_list<const void*> pointers);

// A kernel's argument as Enqueue() wants it: null for what is no pointer.
template <typename T>
const void* ArgumentPointer(const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    return argument;
  } else {
    return nullptr;
  }
}

// A line of a kernel. Not std::source_location, whose functions the sanitizers instrument.
struct Where {
  const char* file = "";
  unsigned line = 0;
};
#define GACCD_WHERE gaccd::simt::Where where = {__builtin_FILE(), __builtin_LINE()}

// Runs the kernel here and now.
void Run(const std::function<void()>& kernel, unsigned blocks, unsigned threads, const char* what);

enum class WarpOp { kShuffle, kVote };

// All threads of the block meet.
void MeetBlock(Where where);
// All lanes of the warp meet; each brings a value and gets those of all 32, valid until its next
// call.
const std::uint64_t* MeetWarp(WarpOp op, unsigned mask, std::uint64_t value, Where where);
[[noreturn]] void Refuse(const char* what, Where where);
// A vector access, whose address a GPU requires to be a multiple of its size.
inline void CheckAlignment(const void* address, std::size_t bytes, GACCD_WHERE) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    Refuse("a vector at an address that is not a multiple of its size", where);
  }
}
// __threadfence() of this thread.
void Fence(Where where);
// An atomic operation counted this block. REQUIRES: the thread called Fence() since its last
// barrier, and where the block is the last of the grid all its threads call Fence() afterwards.
void CountBlock(bool is_last, Where where);

template <typename T>
GACCD_UNCHECKED T Shuffle(unsigned mask, T value, unsigned source, int width, Where where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  if (width != warpSize) Refuse("a shuffle within parts of a warp", where);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const std::uint64_t* all = MeetWarp(WarpOp::kShuffle, mask, bits, where);
  if (source < 32) std::memcpy(&value, &all[source], sizeof(T));  // beyond the warp: its own value
  return value;
}

GACCD_UNCHECKED inline unsigned Lane() { return threadIdx.x % 32; }

}  // namespace gaccd::simt

GACCD_UNCHECKED inline void __syncthreads(GACCD_WHERE) { gaccd::simt::MeetBlock(where); }

template <typename T>
GACCD_UNCHECKED T __shfl_sync(unsigned mask, T value, int source, int width = 32, GACCD_WHERE) {
  return gaccd::simt::Shuffle(mask, value, static_cast<unsigned>(source) % 32, width, where);
}
template <typename T>
GACCD_UNCHECKED T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, GACCD_WHERE) {
  return gaccd::simt::Shuffle(mask, value, gaccd::simt::Lane() ^ static_cast<unsigned>(bits), width,
                              where);
}
template <typename T>
GACCD_UNCHECKED T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                   GACCD_WHERE) {
  return gaccd::simt::Shuffle(mask, value, gaccd::simt::Lane() + delta, width, where);
}

GACCD_UNCHECKED inline unsigned __ballot_sync(unsigned mask, int predicate, GACCD_WHERE) {
  const std::uint64_t* all =
      gaccd::simt::MeetWarp(gaccd::simt::WarpOp::kVote, mask, predicate != 0 ? 1 : 0, where);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) votes |= static_cast<unsigned>(all[lane]) << lane;
  return votes;
}
inline int __any_sync(unsigned mask, int predicate, GACCD_WHERE) {
  return __ballot_sync(mask, predicate, where) != 0 ? 1 : 0;
}

// Blocks of one kernel run on one thread, so no fence is needed here; on a GPU they are, and an
// atomic without them stops the process. Between streams an atomic orders nothing.
inline void __threadfence(GACCD_WHERE) { gaccd::simt::Fence(where); }
// Counts this block as done. Integers only: sums of floats must have one order.
template <typename T, typename V>
T atomicAdd(T* address, V value, GACCD_WHERE) {
  static_assert(std::is_integral_v<T>, "no atomic sums of floats");
  const T old = __atomic_fetch_add(address, static_cast<T>(value), __ATOMIC_RELAXED);
  gaccd::simt::CountBlock(old == static_cast<T>(gridDim.x - 1), where);
  return old;
}
inline unsigned atomicInc(unsigned* address, unsigned limit, GACCD_WHERE) {
  unsigned old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &old, old >= limit ? 0 : old + 1, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  gaccd::simt::CountBlock(old == gridDim.x - 1, where);
  return old;
}

#undef GACCD_WHERE

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, std::type_identity_t<T> value) {
  *address = value;
}
