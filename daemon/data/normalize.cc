#include "daemon/data/normalize.h"

#include <cmath>
#include <cstring>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

GACCD_SIMD_CLONES void ApplyAffine(const std::byte* in, std::size_t count, Affine affine,
                                   float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    float stored = 0;
    std::memcpy(&stored, in + i * sizeof(float), sizeof(float));
    out[i] = static_cast<float>(stored * affine.factor + affine.shift);
  }
}

}  // namespace

Result<Affine> MakeAffine(const NormalizeSpec& normalize, float largest) {
  const Affine affine{normalize.scale / normalize.std, -normalize.mean / normalize.std};
  const auto is_finite = [&affine](float stored) {
    return std::isfinite(static_cast<float>(stored * affine.factor + affine.shift)) &&
           std::isfinite(stored * affine.f32_factor() + affine.f32_shift());
  };
  if (normalize.std != 0 && is_finite(largest) && is_finite(-largest)) return affine;
  return Status(ErrorKind::kConfig,
                StrCat("normalize: expected a finite (stored * scale - mean) / std with std not 0 "
                       "for a stored ",
                       largest, ", found scale ", normalize.scale, ", mean ", normalize.mean,
                       ", std ", normalize.std));
}

void NormalizeF32(std::span<const std::byte> in, Affine affine, float* out) {
  ApplyAffine(in.data(), in.size() / sizeof(float), affine, out);
}

}  // namespace gaccd
