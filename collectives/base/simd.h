// Hints for vectorised loops.
//
// GACCD_SIMD_CLONES before a function compiles it for AVX-512, AVX2 and the baseline; the loader
// selects one for the machine. Empty under sanitizers, which cannot run inside an ifunc resolver.
#pragma once

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
