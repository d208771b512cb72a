#include "daemon/ops/norm/batch_norm_loops_cpu.h"

#include <bit>

#include "collectives/base/simd.h"
#include "daemon/ops/pointwise/elementwise.h"

namespace gaccd::batch_norm {
namespace {

// ReluGradientFormula::Apply() computed with the bits of y: with a comparison, compilers make the
// loads of dy conditional.
inline float Passed(float dy, float y) {
  const auto bits = std::bit_cast<std::uint32_t>(y);
  const auto blocked = static_cast<std::int32_t>(bits | (bits - 1)) >> 31;  // all ones: y <= 0
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(dy) &
                              ~static_cast<std::uint32_t>(blocked));
}

// Rows summed before their sum is added to the total.
constexpr std::int64_t kRowsAtOnce = 4;

// sums[c] += sum of a(i, c), products[c] += sum of a(i, c) b(i, c), over the elements i of channel
// c.
template <typename A, typename B>
inline void AddSums(Rows size, const A& a, const B& b, double* sums, double* products) {
  const std::int64_t width = size.channels;
  std::int64_t n = 0;
  for (; n + kRowsAtOnce <= size.rows; n += kRowsAtOnce) {
    for (std::int64_t c = 0; c < width; ++c) {
      double sum = 0;
      double product = 0;
      for (std::int64_t row = n; row < n + kRowsAtOnce; ++row) {
        const double value = a(row * width + c, c);
        sum += value;
        product += value * b(row * width + c, c);
      }
      sums[c] += sum;
      products[c] += product;
    }
  }
  for (; n < size.rows; ++n) {
    for (std::int64_t c = 0; c < width; ++c) {
      const double value = a(n * width + c, c);
      sums[c] += value;
      products[c] += value * b(n * width + c, c);
    }
  }
}

// to[i] = value(i, c) for every element i of channel c; `to` may alias the memory that value()
// reads at i.
template <typename To, typename Value>
inline void ForElements(Rows size, const Value& value, To* to) {
  for (std::int64_t n = 0; n < size.rows; ++n) {
    const std::int64_t at = n * size.channels;
    GACCD_INDEPENDENT_ITERATIONS
    for (std::int64_t c = 0; c < size.channels; ++c) to[at + c] = FromFloat<To>(value(at + c, c));
  }
}

template <typename To>
inline void NormalizeTo(const float* x, const float* residual, Rows size, const Factors f,
                        bool relu, To* y) {
  const auto norm = [=](std::int64_t i, std::int64_t c) { return f.Norm(x[i], c); };
  const auto sum = [=](std::int64_t i, std::int64_t c) { return norm(i, c) + residual[i]; };
  const auto relu_of = [](const auto& value) {
    return [=](std::int64_t i, std::int64_t c) { return ReluFormula::Apply(value(i, c)); };
  };
  if (residual != nullptr) {
    relu ? ForElements(size, relu_of(sum), y) : ForElements(size, sum, y);
  } else {
    relu ? ForElements(size, relu_of(norm), y) : ForElements(size, norm, y);
  }
}
template <typename To>
inline void GradientsTo(const float* dy, const float* x, Rows size, const Factors f, bool relu,
                        To* dx) {
  const auto gradient = [=](float passed, std::int64_t i, std::int64_t c) {
    return passed * f.scale[c] - (x[i] - f.mean[c]) * f.slope[c] - f.offset[c];
  };
  if (relu) {
    const auto value = [=](std::int64_t i, std::int64_t c) {
      return gradient(Passed(dy[i], f.Norm(x[i], c)), i, c);
    };
    ForElements(size, value, dx);
  } else {
    const auto value = [=](std::int64_t i, std::int64_t c) { return gradient(dy[i], i, c); };
    ForElements(size, value, dx);
  }
}
}  // namespace

GACCD_SIMD_CLONES
void SumChannels(const float* x, Rows size, double* sums) {
  AddSums(
      size, [x](std::int64_t i, std::int64_t) { return static_cast<double>(x[i]); },
      [x](std::int64_t i, std::int64_t) { return static_cast<double>(x[i]); }, sums,
      sums + size.channels);
}

GACCD_SIMD_CLONES
void SumGradients(const float* dy, const float* x, Rows size, const Factors& factors, bool relu,
                  double* sums) {
  const Factors f = factors;  // a copy: its pointers do not alias written memory
  const auto centred = [=](std::int64_t i, std::int64_t c) {
    return static_cast<double>(x[i] - f.mean[c]);
  };
  if (relu) {
    const auto passed = [=](std::int64_t i, std::int64_t c) {
      return static_cast<double>(Passed(dy[i], f.Norm(x[i], c)));
    };
    AddSums(size, passed, centred, sums, sums + size.channels);
  } else {
    const auto all = [=](std::int64_t i, std::int64_t) { return static_cast<double>(dy[i]); };
    AddSums(size, all, centred, sums, sums + size.channels);
  }
}

GACCD_SIMD_CLONES
void Normalize(const float* x, const float* residual, Rows size, const Factors& f, bool relu,
               float* y) {
  NormalizeTo(x, residual, size, f, relu, y);
}
GACCD_SIMD_CLONES
void Normalize(const float* x, const float* residual, Rows size, const Factors& f, bool relu,
               Bf16* y) {
  NormalizeTo(x, residual, size, f, relu, y);
}

GACCD_SIMD_CLONES
void InputGradients(const float* dy, const float* x, Rows size, const Factors& f, bool relu,
                    float* dx) {
  GradientsTo(dy, x, size, f, relu, dx);
}
GACCD_SIMD_CLONES
void InputGradients(const float* dy, const float* x, Rows size, const Factors& f, bool relu,
                    Bf16* dx) {
  GradientsTo(dy, x, size, f, relu, dx);
}

}  // namespace gaccd::batch_norm
