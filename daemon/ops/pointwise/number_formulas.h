// Formulas of number_functions.h, shared by CPU and GPU.
#pragma once

#include <math.h>

#include <cstdint>

#include "daemon/tensor/host_device.h"

namespace gaccd {

enum class NumberKind : std::uint8_t {
  kAffine,
  kPower,
  kHardsigmoid,
  kClamp,
  kHardtanh,
  kLeakyRelu,
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kSoftplus,
  kRoot,
  kSin,
  kCos,
  kErf,
  kErfc,
  kFloor,
  kEqual,
  kLess
};

struct NumberPair {
  float a = 0;
  float b = 0;
};

// Avoids powf for the powers used by norms and GELU.
GACCD_HOST_DEVICE inline float Power(float x, float exponent) {
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (exponent == 1) return x;
  if (exponent == -0.5F) return 1 / sqrtf(x);
  if (exponent == -1.5F) return 1 / (x * sqrtf(x));
  if (exponent == 0.5F) return sqrtf(x);
  if (exponent == -1) return 1 / x;
  return powf(x, exponent);
}

template <NumberKind kKind>
struct NumberFormula {
  NumberPair n;

  [[nodiscard]] GACCD_HOST_DEVICE float Apply(float x) const {
    if constexpr (kKind == NumberKind::kAffine) return n.a * x + n.b;
    if constexpr (kKind == NumberKind::kPower) return Power(x, n.a);
    if constexpr (kKind == NumberKind::kHardsigmoid) {
      const float above = x >= 3 ? 1.0F : (x + 3) * (1.0F / 6);
      return x <= -3 ? 0.0F : above;
    }
    if constexpr (kKind == NumberKind::kClamp || kKind == NumberKind::kHardtanh) {
      const float above = x > n.b ? n.b : x;
      return x < n.a ? n.a : above;
    }
    if constexpr (kKind == NumberKind::kLeakyRelu) return x > 0 ? x : n.a * x;
    if constexpr (kKind == NumberKind::kExp) return expf(x);
    if constexpr (kKind == NumberKind::kExpm1) return expm1f(x);
    if constexpr (kKind == NumberKind::kLog) return logf(x);
    if constexpr (kKind == NumberKind::kLog1p) return log1pf(x);
    if constexpr (kKind == NumberKind::kSoftplus) {
      return (x > 0 ? x : 0.0F) + log1pf(expf(x > 0 ? -x : x));
    }
    if constexpr (kKind == NumberKind::kRoot) return sqrtf(x);
    if constexpr (kKind == NumberKind::kSin) return sinf(x);
    if constexpr (kKind == NumberKind::kCos) return cosf(x);
    if constexpr (kKind == NumberKind::kErf) return erff(x);
    if constexpr (kKind == NumberKind::kErfc) return erfcf(x);
    if constexpr (kKind == NumberKind::kFloor) return floorf(x);
    if constexpr (kKind == NumberKind::kEqual) return x == n.a ? 1.0F : 0.0F;
    if constexpr (kKind == NumberKind::kLess) return x < n.a ? 1.0F : 0.0F;
  }
  [[nodiscard]] GACCD_HOST_DEVICE float Gradient(float dy, float x) const {
    if constexpr (kKind == NumberKind::kAffine) return n.a * dy;
    if constexpr (kKind == NumberKind::kPower) {
      if (n.a == -1) return -(dy / x) / x;  // x^-2 overflows earlier
      return n.a * Power(x, n.a - 1) * dy;
    }
    if constexpr (kKind == NumberKind::kHardsigmoid) {
      return x > -3 && x < 3 ? dy * (1.0F / 6) : 0.0F;
    }
    if constexpr (kKind == NumberKind::kClamp) return x >= n.a && x <= n.b ? dy : 0.0F;
    if constexpr (kKind == NumberKind::kHardtanh) return x > n.a && x < n.b ? dy : 0.0F;
    if constexpr (kKind == NumberKind::kLeakyRelu) return x > 0 ? dy : n.a * dy;
    if constexpr (kKind == NumberKind::kExp || kKind == NumberKind::kExpm1) return dy * expf(x);
    if constexpr (kKind == NumberKind::kLog) return dy / x;
    if constexpr (kKind == NumberKind::kLog1p) return dy / (1 + x);
    if constexpr (kKind == NumberKind::kSoftplus) return dy / (1 + expf(-x));
    if constexpr (kKind == NumberKind::kRoot) return x == 0 ? 0.0F : dy / (2 * sqrtf(x));
    if constexpr (kKind == NumberKind::kSin) return dy * cosf(x);
    if constexpr (kKind == NumberKind::kCos) return -dy * sinf(x);
    if constexpr (kKind == NumberKind::kErf) return dy * (1.12837917F * expf(-x * x));
    if constexpr (kKind == NumberKind::kErfc) return dy * (-1.12837917F * expf(-x * x));
    if constexpr (kKind == NumberKind::kFloor || kKind == NumberKind::kEqual ||
                  kKind == NumberKind::kLess) {
      return 0.0F;
    }
  }
};

struct NumberOfId {
  GACCD_HOST_DEVICE float Apply(std::int32_t id) const { return static_cast<float>(id); }
};
// A number that is not a valid id becomes -1, which is not in any table.
struct IdOfNumber {
  GACCD_HOST_DEVICE std::int32_t Apply(float number) const {
    return number >= 0 && number < 0x1p31F ? static_cast<std::int32_t>(number) : -1;
  }
};
struct SkippedId {
  std::int32_t skipped;
  GACCD_HOST_DEVICE std::int32_t Apply(std::int32_t id) const { return id == skipped ? -1 : id; }
};

// Calls f(NumberFormula) for this kind.
template <typename F>
auto WithNumberFormula(NumberKind kind, NumberPair numbers, F&& f) {
  switch (kind) {
    case NumberKind::kPower:
      return f(NumberFormula<NumberKind::kPower>{numbers});
    case NumberKind::kHardsigmoid:
      return f(NumberFormula<NumberKind::kHardsigmoid>{numbers});
    case NumberKind::kClamp:
      return f(NumberFormula<NumberKind::kClamp>{numbers});
    case NumberKind::kHardtanh:
      return f(NumberFormula<NumberKind::kHardtanh>{numbers});
    case NumberKind::kLeakyRelu:
      return f(NumberFormula<NumberKind::kLeakyRelu>{numbers});
    case NumberKind::kExp:
      return f(NumberFormula<NumberKind::kExp>{numbers});
    case NumberKind::kExpm1:
      return f(NumberFormula<NumberKind::kExpm1>{numbers});
    case NumberKind::kLog:
      return f(NumberFormula<NumberKind::kLog>{numbers});
    case NumberKind::kLog1p:
      return f(NumberFormula<NumberKind::kLog1p>{numbers});
    case NumberKind::kSoftplus:
      return f(NumberFormula<NumberKind::kSoftplus>{numbers});
    case NumberKind::kRoot:
      return f(NumberFormula<NumberKind::kRoot>{numbers});
    case NumberKind::kSin:
      return f(NumberFormula<NumberKind::kSin>{numbers});
    case NumberKind::kCos:
      return f(NumberFormula<NumberKind::kCos>{numbers});
    case NumberKind::kErf:
      return f(NumberFormula<NumberKind::kErf>{numbers});
    case NumberKind::kErfc:
      return f(NumberFormula<NumberKind::kErfc>{numbers});
    case NumberKind::kFloor:
      return f(NumberFormula<NumberKind::kFloor>{numbers});
    case NumberKind::kEqual:
      return f(NumberFormula<NumberKind::kEqual>{numbers});
    case NumberKind::kLess:
      return f(NumberFormula<NumberKind::kLess>{numbers});
    case NumberKind::kAffine:
      break;
  }
  return f(NumberFormula<NumberKind::kAffine>{numbers});
}

}  // namespace gaccd
