// Elementwise formulas, shared by CPU and GPU.
#pragma once

#include <math.h>

#include <cstdint>

#include "daemon/ops/pointwise/math.h"
#include "daemon/tensor/host_device.h"
#include "daemon/tensor/random.h"

namespace gaccd {

struct AddFormula {
  GACCD_HOST_DEVICE static float Apply(float a, float b) { return a + b; }
};
struct ReluFormula {
  GACCD_HOST_DEVICE static float Apply(float x) { return x <= 0 ? 0.0F : x; }  // a NaN stays NaN
};
struct ReluGradientFormula {
  GACCD_HOST_DEVICE static float Apply(float dy, float y) { return y <= 0 ? 0.0F : dy; }
};
struct IdentityFormula {  // a cast
  GACCD_HOST_DEVICE static float Apply(float x) { return x; }
};

enum class ActivationKind : std::uint8_t { kGelu, kGeluTanh, kTanh, kSilu, kSigmoid, kHardswish };

// An activation and its derivative. In two formulas the compiler computes the exponential twice.
struct ValueAndSlope {
  float value;
  float slope;
};

// Activations of activations.h. Gradients take dy and x; those of tanh and sigmoid dy and y. Math:
// see ExactMath.
template <typename Math>
struct GeluFormula {
  GACCD_HOST_DEVICE static float Apply(float x) { return WithSlope(x).value; }
  GACCD_HOST_DEVICE static ValueAndSlope WithSlope(float x) {
    const NormalAt at = NormalDistribution<Math>(x);
    return {x * at.below, at.below + x * at.density};
  }
};
template <typename Math>
struct GeluGradientFormula {
  GACCD_HOST_DEVICE static float Apply(float dy, float x) {
    return dy * GeluFormula<Math>::WithSlope(x).slope;
  }
};
template <typename Math>
struct GeluTanhFormula {
  GACCD_HOST_DEVICE static float Apply(float x) { return WithSlope(x).value; }
  // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u))
  GACCD_HOST_DEVICE static ValueAndSlope WithSlope(float x) {
    constexpr float kScale = 1.59576912F;  // 2 sqrt(2 / pi)
    constexpr float kCubic = 0.044715F;
    const float gate = Math::Divide(1.0F, 1.0F + Math::Exp(-kScale * (x + kCubic * x * x * x)));
    const float slope = kScale * (1.0F + 3.0F * kCubic * x * x);
    return {x * gate, gate + x * gate * (1.0F - gate) * slope};
  }
};
template <typename Math>
struct GeluTanhGradientFormula {
  GACCD_HOST_DEVICE static float Apply(float dy, float x) {
    return dy * GeluTanhFormula<Math>::WithSlope(x).slope;
  }
};
template <typename Math>
struct TanhFormula {
  GACCD_HOST_DEVICE static float Apply(float x) { return Tanh<Math>(x); }
};
template <typename Math>
struct TanhGradientFormula {
  GACCD_HOST_DEVICE static float Apply(float dy, float y) { return dy * (1.0F - y * y); }
};
template <typename Math>
struct SiluFormula {
  GACCD_HOST_DEVICE static float Apply(float x) { return Math::Divide(x, 1.0F + Math::Exp(-x)); }
};
template <typename Math>
struct SiluGradientFormula {
  GACCD_HOST_DEVICE static float Apply(float dy, float x) {
    const float s = Math::Divide(1.0F, 1.0F + Math::Exp(-x));
    return dy * s * (1.0F + x * (1.0F - s));
  }
};
template <typename Math>
struct SigmoidFormula {
  GACCD_HOST_DEVICE static float Apply(float x) { return Math::Divide(1.0F, 1.0F + Math::Exp(-x)); }
};
template <typename Math>
struct SigmoidGradientFormula {
  GACCD_HOST_DEVICE static float Apply(float dy, float y) { return dy * (y * (1.0F - y)); }
};
template <typename Math>
struct HardswishFormula {
  GACCD_HOST_DEVICE static float Apply(float x) {
    const float above = x >= 3.0F ? x : x * (x + 3.0F) * (1.0F / 6);
    return x <= -3.0F ? 0.0F : above;
  }
};
template <typename Math>
struct HardswishGradientFormula {
  GACCD_HOST_DEVICE static float Apply(float dy, float x) {
    const float above = x >= 3.0F ? dy : dy * (x * (1.0F / 3) + 0.5F);
    return x <= -3.0F ? 0.0F : above;
  }
};

// Calls call(Forward(), Gradient()) with the formulas of `kind`.
template <typename Math, typename Call>
auto WithActivation(ActivationKind kind, const Call& call) {
  switch (kind) {
    case ActivationKind::kGelu:
      return call(GeluFormula<Math>(), GeluGradientFormula<Math>());
    case ActivationKind::kGeluTanh:
      return call(GeluTanhFormula<Math>(), GeluTanhGradientFormula<Math>());
    case ActivationKind::kTanh:
      return call(TanhFormula<Math>(), TanhGradientFormula<Math>());
    case ActivationKind::kSigmoid:
      return call(SigmoidFormula<Math>(), SigmoidGradientFormula<Math>());
    case ActivationKind::kHardswish:
      return call(HardswishFormula<Math>(), HardswishGradientFormula<Math>());
    case ActivationKind::kSilu:
      break;
  }
  return call(SiluFormula<Math>(), SiluGradientFormula<Math>());
}
template <typename Forward>
inline constexpr bool kGradientTakesOutput = false;
template <typename Math>
inline constexpr bool kGradientTakesOutput<TanhFormula<Math>> = true;
template <typename Math>
inline constexpr bool kGradientTakesOutput<SigmoidFormula<Math>> = true;

// Dropout: each sample has a separate stream of random numbers; an element uses half of one.
struct DropoutMask {
  std::uint64_t layer = 0;      // StreamKey(StreamKey(seed, update), layer)
  std::uint32_t threshold = 0;  // probability * 2^32
  float scale = 1;              // 1 / (1 - probability)
  float spread = 0;             // not 0: uniform in (1 - spread, 1 + spread) instead

  // Masks without the layer. REQUIRES: 0 <= probability < 1; 0 <= spread <= 1.
  [[nodiscard]] static DropoutMask For(double probability) {
    return {.threshold = static_cast<std::uint32_t>(probability * 0x1p32),
            .scale = static_cast<float>(1 / (1 - probability))};
  }
  [[nodiscard]] static DropoutMask Uniform(float spread) { return {.spread = spread}; }
  [[nodiscard]] GACCD_HOST_DEVICE std::uint64_t SampleKey(std::int64_t sample) const {
    return StreamKey(layer, static_cast<std::uint64_t>(sample));
  }
  // Factors of the elements 2 pair and 2 pair + 1 of a sample.
  [[nodiscard]] GACCD_HOST_DEVICE float First(std::uint64_t key, std::int64_t pair) const {
    return Factor(static_cast<std::uint32_t>(StreamValue(key, static_cast<std::uint64_t>(pair))));
  }
  [[nodiscard]] GACCD_HOST_DEVICE float Second(std::uint64_t key, std::int64_t pair) const {
    const std::uint64_t bits = StreamValue(key, static_cast<std::uint64_t>(pair));
    return Factor(static_cast<std::uint32_t>(bits >> 32));
  }
  [[nodiscard]] GACCD_HOST_DEVICE float At(std::uint64_t key, std::int64_t place) const {
    return place % 2 == 0 ? First(key, place / 2) : Second(key, place / 2);
  }

 private:
  [[nodiscard]] GACCD_HOST_DEVICE float Factor(std::uint32_t bits) const {
    if (spread > 0) {
      // The middle of one of 2^23 equal parts of (-1, 1). f32 represents it, and 1 plus it,
      // exactly.
      const auto part = static_cast<std::int32_t>(bits >> 9);
      return 1 + spread * (static_cast<float>(2 * part + 1 - (1 << 23)) * 0x1p-23F);
    }
    return bits < threshold ? 0.0F : scale;
  }
};

// (y - t)^2 in double: the loss of a good prediction is small compared with y and t.
GACCD_HOST_DEVICE inline double SquaredError(float y, float t) {
  const double difference = static_cast<double>(y) - static_cast<double>(t);
  return difference * difference;
}
// d (weight / columns * sum over columns of (y - t)^2) / d y = slope * (y - t)
GACCD_HOST_DEVICE inline float SquaredErrorSlope(float weight, std::int64_t columns) {
  return weight * 2.0F / static_cast<float>(columns);
}
GACCD_HOST_DEVICE inline float SquaredErrorGradient(float slope, float y, float t) {
  return slope * (y - t);
}

// Softmax of a row. `rest` is the sum of exp(z - top) over all classes except the label, `label` =
// exp(z_label - top), top the largest logit. Keeping both separate gives full precision for the
// loss of a confident row (a tiny rest):
//   loss = -log(label / (rest + label)) = log(1 + rest / label)
struct SoftmaxRow {
  float top = 0;
  float rest = 0;
  float label = 0;

  [[nodiscard]] GACCD_HOST_DEVICE float total() const { return rest + label; }
};
GACCD_HOST_DEVICE inline double CrossEntropy(const SoftmaxRow& row, float label_logit) {
  // row.label is then 1, or NaN if the logit is infinite.
  if (row.top == label_logit) {
    return log1p(static_cast<double>(row.rest) / static_cast<double>(row.label));
  }
  return static_cast<double>(row.top) - static_cast<double>(label_logit) +
         log(static_cast<double>(row.rest) + static_cast<double>(row.label));
}

}  // namespace gaccd
