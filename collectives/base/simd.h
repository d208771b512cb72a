// Hints for vectorised loops.
//
// GACCD_SIMD_CLONES before a function compiles it for AVX-512, AVX2 and the baseline; the loader
// selects one for the machine. Empty under sanitizers, which cannot run inside an ifunc resolver.
#pragma once

#include <cstdint>

#if defined(GACCD_SANITIZED) || !defined(__x86_64__) || defined(__clang__)
#define GACCD_SIMD_CLONES
#else
#define GACCD_SIMD_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

// Whether the registers hold vectors of 16 floats. If not, cloned functions with explicit vector
// types use vectors of 8 floats: the compiler keeps a vector wider than a register in memory.
inline bool HasRegistersOf16Floats() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

// GACCD_INDEPENDENT_ITERATIONS before a loop: no iteration reads what another one writes, so the
// compiler need not check at run time whether pointers overlap.
#if defined(__clang__)
#define GACCD_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define GACCD_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

// Starts to load the lines of an output shortly before a loop writes them. Stores alone bring lines
// from memory at two thirds of its rate (9.6 and 15 GB/s on one core of an Intel Xeon).
[[gnu::always_inline]] inline void PrefetchOutput(const void* output, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  const auto* const first = static_cast<const char*>(output);
  for (std::int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(first + at);
}

// body(i) for each i < elements, which writes element i of the outputs.
template <typename Body, typename... T>
[[gnu::always_inline]] inline void ForEachElement(std::int64_t elements, const Body& body,
                                                  T*... outputs) {
  constexpr std::int64_t kAtOnce = 128;
  for (std::int64_t first = 0; first < elements; first += kAtOnce) {
    const std::int64_t end = first + kAtOnce < elements ? first + kAtOnce : elements;
    (PrefetchOutput(outputs + end, kAtOnce * static_cast<std::int64_t>(sizeof(T))), ...);
    GACCD_INDEPENDENT_ITERATIONS
    for (std::int64_t i = first; i < end; ++i) body(i);
  }
}
