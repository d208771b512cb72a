// Normalisation (stored * scale - mean) / std as one multiplication and one addition.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

// feature = stored * factor + shift, factor = scale / std, shift = -mean / std. In f32 for stored
// bytes; in f64, rounded at the end, for wider types, because f32 would lose the difference of
// large values that differ little.
struct Affine {
  double factor = 1;
  double shift = 0;

  bool operator==(const Affine&) const = default;
  [[nodiscard]] float f32_factor() const { return static_cast<float>(factor); }
  [[nodiscard]] float f32_shift() const { return static_cast<float>(shift); }
};

// kConfig if std is 0, or the feature of a stored -largest or largest is not finite.
Result<Affine> MakeAffine(const NormalizeSpec& normalize, float largest);

// out[i] = in[i] * factor + shift, in f64. The product is rounded before the addition (no FMA), so
// a sample has the same bits on every machine. REQUIRES: `out` has as many floats as `in`; `in` and
// `out` are the same memory or do not overlap.
void NormalizeF32(std::span<const std::byte> in, Affine affine, float* out);  // any alignment

}  // namespace gaccd
