// The most that a product can reach on this core, measured: 6 rows by 4 vectors of C are summed in
// registers from A and B in the L1 cache, as the loops of a product do. The widest vectors that the
// CPU has, the median of many rounds. Prints one JSON line; a multiply-add is two operations.
//   f32_gflops    sums of f32
//   bf16_gflops   products of bf16 summed in f32 by AVX512_BF16; null without it, and with AMX,
//                 which is faster and not measured
#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

namespace gaccd {
namespace {

constexpr int kRows = 6;
constexpr int kDepth = 96;  // A and B take 27 KB, less than any L1 cache
constexpr int kTiles = 20000;
constexpr int kRepeats = 31;

// 4-byte elements: a float, or two bf16.
struct Operands {
  alignas(64) std::array<float, kDepth * kRows> a;
  alignas(64) std::array<float, kDepth * 64> b;
  alignas(64) std::array<float, kRows * 64> c;
};

__attribute__((target("avx512f"))) void TileAvx512(Operands& x) {
  __m512 sums[kRows][4] = {};
  for (int k = 0; k < kDepth; ++k) {
    __m512 b[4];
    for (int j = 0; j < 4; ++j) b[j] = _mm512_load_ps(&x.b[k * 64 + j * 16]);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const __m512 a = _mm512_set1_ps(x.a[k * kRows + i]);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sums[i][j] = _mm512_fmadd_ps(a, b[j], sums[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < 4; ++j) _mm512_store_ps(&x.c[i * 64 + j * 16], sums[i][j]);
  }
}

__attribute__((target("avx512f,avx512bf16"))) void TileAvx512Bf16(Operands& x) {
  __m512 sums[kRows][4] = {};
  for (int k = 0; k < kDepth; ++k) {
    __m512bh b[4];
    for (int j = 0; j < 4; ++j) b[j] = (__m512bh)_mm512_load_ps(&x.b[k * 64 + j * 16]);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const auto a = (__m512bh)_mm512_set1_ps(x.a[k * kRows + i]);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sums[i][j] = _mm512_dpbf16_ps(sums[i][j], a, b[j]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < 4; ++j) _mm512_store_ps(&x.c[i * 64 + j * 16], sums[i][j]);
  }
}

// Two vectors: there are 16 registers.
__attribute__((target("avx2,fma"))) void TileAvx2(Operands& x) {
  __m256 sums[kRows][2] = {};
  for (int k = 0; k < kDepth; ++k) {
    const __m256 b[2] = {_mm256_load_ps(&x.b[k * 16]), _mm256_load_ps(&x.b[k * 16 + 8])};
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const __m256 a = _mm256_set1_ps(x.a[k * kRows + i]);
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) sums[i][j] = _mm256_fmadd_ps(a, b[j], sums[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < 2; ++j) _mm256_store_ps(&x.c[i * 16 + j * 8], sums[i][j]);
  }
}

// In GFLOP/s, of tiles of so many multiply-adds.
double Rate(void (*tile)(Operands&), int multiply_adds) {
  static Operands operands;
  std::ranges::fill(operands.a, 1e-3F);
  std::ranges::fill(operands.b, 1e-3F);
  std::array<double, kRepeats> rates;
  for (double& rate : rates) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTiles; ++i) tile(operands);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    rate = 2.0 * multiply_adds * kTiles / took.count() / 1e9;
  }
  std::ranges::nth_element(rates, rates.begin() + kRepeats / 2);
  return rates[kRepeats / 2];
}

bool HasAmxBf16() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22 & 1) != 0;
}

int Main() {
  constexpr int kPoints = kRows * kDepth;
  if (__builtin_cpu_supports("avx512f")) {
    std::printf(R"({"isa":"avx512","f32_gflops":%.1f,"bf16_gflops":)",
                Rate(TileAvx512, kPoints * 64));
    if (__builtin_cpu_supports("avx512bf16") && !HasAmxBf16()) {
      std::printf("%.1f}\n", Rate(TileAvx512Bf16, kPoints * 64 * 2));
    } else {
      std::puts("null}");
    }
    return EXIT_SUCCESS;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    std::printf(R"({"isa":"avx2","f32_gflops":%.1f,"bf16_gflops":null})"
                "\n",
                Rate(TileAvx2, kPoints * 16));
    return EXIT_SUCCESS;
  }
  std::fprintf(stderr, "peak_flops: this CPU has neither AVX-512 nor AVX2 with FMA\n");
  return EXIT_FAILURE;
}

}  // namespace
}  // namespace gaccd

int main() { return gaccd::Main(); }
