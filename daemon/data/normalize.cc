#include "daemon/data/normalize.h"

#include <cmath>
#include <cstring>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

GACCD_SIMD_CLONES void ApplyAffine(const std::byte* in, std::size_t count, float factor,
                                   float shift, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    float stored = 0;
    std::memcpy(&stored, in + i * sizeof(float), sizeof(float));
    out[i] = stored * factor + shift;
  }
}

}  // namespace

Result<Affine> MakeAffine(const NormalizeSpec& normalize, float largest) {
  const Affine affine{static_cast<float>(normalize.scale / normalize.std),
                      static_cast<float>(-normalize.mean / normalize.std)};
  if (normalize.std != 0 && std::isfinite(largest * affine.factor + affine.shift) &&
      std::isfinite(-largest * affine.factor + affine.shift)) {
    return affine;
  }
  return Status(ErrorKind::kConfig,
                StrCat("normalize: expected a finite (stored * scale - mean) / std with std not 0 "
                       "for a stored ",
                       largest, ", found scale ", normalize.scale, ", mean ", normalize.mean,
                       ", std ", normalize.std));
}

void NormalizeF32(std::span<const std::byte> in, Affine affine, float* out) {
  ApplyAffine(in.data(), in.size() / sizeof(float), affine.factor, affine.shift, out);
}

}  // namespace gaccd
