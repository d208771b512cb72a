#include <cstddef>
#include <cstring>

#include "collectives/base/simd.h"
#include "daemon/device/cpu/winograd.h"

namespace gaccd {
namespace {

using WideLanes = float __attribute__((vector_size(kWinogradLanes * sizeof(float))));
using HalfLanes = float __attribute__((vector_size(kWinogradLanes / 2 * sizeof(float))));

// One side of each transformation, from values `stride` apart to values `to_stride` apart.
struct InputSide {
  static constexpr int kFrom = 4, kTo = 4;
  template <typename Lanes>
  [[gnu::always_inline]] static void Apply(const Lanes* d, int stride, Lanes* to, int to_stride) {
    to[0] = d[0] - d[2 * stride];
    to[to_stride] = d[stride] + d[2 * stride];
    to[2 * to_stride] = d[2 * stride] - d[stride];
    to[3 * to_stride] = d[stride] - d[3 * stride];
  }
};
struct ResultSide {
  static constexpr int kFrom = 4, kTo = 2;
  template <typename Lanes>
  [[gnu::always_inline]] static void Apply(const Lanes* m, int stride, Lanes* to, int to_stride) {
    to[0] = m[0] + m[stride] + m[2 * stride];
    to[to_stride] = m[stride] - m[2 * stride] - m[3 * stride];
  }
};
struct ResultGradientSide {
  static constexpr int kFrom = 2, kTo = 4;
  template <typename Lanes>
  [[gnu::always_inline]] static void Apply(const Lanes* dy, int stride, Lanes* to, int to_stride) {
    to[0] = dy[0];
    to[to_stride] = dy[0] + dy[stride];
    to[2 * to_stride] = dy[0] - dy[stride];
    to[3 * to_stride] = -dy[stride];
  }
};
struct KernelSide {
  static constexpr int kFrom = 3, kTo = 4;
  template <typename Lanes>
  [[gnu::always_inline]] static void Apply(const Lanes* g, int stride, Lanes* to, int to_stride) {
    const Lanes outer = 0.5F * (g[0] + g[2 * stride]);
    const Lanes middle = 0.5F * g[stride];
    to[0] = g[0];
    to[to_stride] = outer + middle;
    to[2 * to_stride] = outer - middle;
    to[3 * to_stride] = g[2 * stride];
  }
};
struct KernelGradientSide {
  static constexpr int kFrom = 4, kTo = 3;
  template <typename Lanes>
  [[gnu::always_inline]] static void Apply(const Lanes* m, int stride, Lanes* to, int to_stride) {
    const Lanes sum = 0.5F * (m[stride] + m[2 * stride]);
    to[0] = m[0] + sum;
    to[to_stride] = 0.5F * (m[stride] - m[2 * stride]);
    to[2 * to_stride] = sum + m[3 * stride];
  }
};

// From a square of kFrom x kFrom, row by row, to one of kTo x kTo.
template <typename Side, typename Lanes>
[[gnu::always_inline]] inline void BothSides(const Lanes* from, Lanes* to) {
  Lanes half[Side::kTo * Side::kFrom];
#pragma GCC unroll 4
  for (int s = 0; s < Side::kFrom; ++s) {
    Side::Apply(from + s, Side::kFrom, half + s, Side::kFrom);
  }
#pragma GCC unroll 4
  for (int r = 0; r < Side::kTo; ++r) {
    Side::Apply(half + r * Side::kFrom, 1, to + r * Side::kTo, 1);
  }
}

template <typename Side, typename Lanes, typename From, typename To>
[[gnu::always_inline]] inline void ForLanesWithWidth(std::int64_t count, const From& from,
                                                     const To& to, const float* added) {
  constexpr std::int64_t kStep = sizeof(Lanes) / sizeof(float);
  for (std::int64_t c = 0; c < count; c += kStep) {
    Lanes square[Side::kFrom * Side::kFrom];
    Lanes result[Side::kTo * Side::kTo];
#pragma GCC unroll 16
    for (int p = 0; p < Side::kFrom * Side::kFrom; ++p) {
      std::memcpy(square + p, from(p, c), sizeof(Lanes));
    }
    BothSides<Side>(square, result);
    Lanes more{};
    if (added != nullptr) std::memcpy(&more, added + c, sizeof(Lanes));
#pragma GCC unroll 16
    for (int p = 0; p < Side::kTo * Side::kTo; ++p) {
      if (added != nullptr) result[p] += more;
      std::memcpy(to(p, c), result + p, sizeof(Lanes));
    }
  }
}

// For each vector of `count` values, read at from(index in the square, first value) and written to
// to(the same). added: to every result; null: nothing.
template <typename Side, typename From, typename To>
[[gnu::always_inline]] inline void ForLanes(std::int64_t count, const From& from, const To& to,
                                            const float* added = nullptr) {
  HasRegistersOf16Floats() ? ForLanesWithWidth<Side, WideLanes>(count, from, to, added)
                           : ForLanesWithWidth<Side, HalfLanes>(count, from, to, added);
}

// Planes `step` values apart.
template <typename T>
auto Planes(T* planes, std::int64_t step) {
  return [=](int p, std::int64_t c) { return planes + p * step + c; };
}
// Arbitrary addresses.
template <typename T, std::size_t kCount>
auto Places(const std::array<T*, kCount>& places) {
  return [=](int p, std::int64_t c) { return places[static_cast<std::size_t>(p)] + c; };
}

}  // namespace

GACCD_SIMD_CLONES
void TransformPixels(const std::array<const float*, 16>& pixels, std::int64_t channels,
                     float* planes, std::int64_t step) {
  ForLanes<InputSide>(channels, Places(pixels), Planes(planes, step));
}

GACCD_SIMD_CLONES
void TransformResults(const float* planes, std::int64_t step, std::int64_t channels,
                      const float* bias, const std::array<float*, 4>& results) {
  ForLanes<ResultSide>(channels, Planes(planes, step), Places(results), bias);
}

GACCD_SIMD_CLONES
void TransformResultGradients(const std::array<const float*, 4>& gradients, std::int64_t channels,
                              float* planes, std::int64_t step) {
  ForLanes<ResultGradientSide>(channels, Places(gradients), Planes(planes, step));
}

GACCD_SIMD_CLONES
void TransformKernels(const float* kernels, std::int64_t count, bool turned, float* planes) {
  // Rotated by 180 degrees: the last value first.
  ForLanes<KernelSide>(count, turned ? Planes(kernels + 8 * count, -count) : Planes(kernels, count),
                       Planes(planes, count));
}

GACCD_SIMD_CLONES
void TransformKernelGradients(float* planes, std::int64_t count) {
  ForLanes<KernelGradientSide>(count, Planes(planes, count), Planes(planes, count));
}

}  // namespace gaccd
