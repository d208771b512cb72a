// The most fp32 multiply-adds this core does a second, measured: registers only, twelve independent
// chains (two units of latency four or five need at least ten), the widest vectors the CPU has.
// Prints one JSON line; GFLOP/s count a multiply-add as two.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace gaccd {
namespace {

constexpr int kChains = 12;
constexpr std::int64_t kRounds = 2'000'000;
constexpr int kRepeats = 15;

// `x` is near one and `y` tiny, so that no chain overflows or becomes denormal (which is slow).
__attribute__((target("avx512f"))) float RunAvx512(std::int64_t rounds, float x, float y) {
  __m512 chains[kChains];
  for (auto& chain : chains) chain = _mm512_set1_ps(x);
  const __m512 factor = _mm512_set1_ps(x);
  const __m512 term = _mm512_set1_ps(y);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& chain : chains) chain = _mm512_fmadd_ps(chain, factor, term);
  }
  __m512 sum = chains[0];
  for (int i = 1; i < kChains; ++i) sum = _mm512_add_ps(sum, chains[i]);
  float lanes[16];
  _mm512_storeu_ps(lanes, sum);
  return lanes[0] + lanes[15];
}

__attribute__((target("avx2,fma"))) float RunAvx2(std::int64_t rounds, float x, float y) {
  __m256 chains[kChains];
  for (auto& chain : chains) chain = _mm256_set1_ps(x);
  const __m256 factor = _mm256_set1_ps(x);
  const __m256 term = _mm256_set1_ps(y);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& chain : chains) chain = _mm256_fmadd_ps(chain, factor, term);
  }
  __m256 sum = chains[0];
  for (int i = 1; i < kChains; ++i) sum = _mm256_add_ps(sum, chains[i]);
  float lanes[8];
  _mm256_storeu_ps(lanes, sum);
  return lanes[0] + lanes[7];
}

struct Kernel {
  const char* name;
  int lanes;
  float (*run)(std::int64_t rounds, float x, float y);
};

int Main() {
  Kernel kernel{};
  if (__builtin_cpu_supports("avx512f")) {
    kernel = {"avx512", 16, RunAvx512};
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    kernel = {"avx2", 8, RunAvx2};
  } else {
    std::fprintf(stderr, "peak_flops: this CPU has neither AVX-512 nor AVX2 with FMA\n");
    return EXIT_FAILURE;
  }
  double best = 0;
  float sink = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    sink += kernel.run(kRounds, 0.999999F, 1e-6F);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, 2.0 * kChains * kernel.lanes * kRounds / took.count() / 1e9);
  }
  std::printf("{\"isa\":\"%s\",\"gflops\":%.1f,\"check\":%g}\n", kernel.name, best,
              static_cast<double>(sink));
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace gaccd

int main() { return gaccd::Main(); }
