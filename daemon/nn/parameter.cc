#include "daemon/nn/parameter.h"

#include <algorithm>

#include "daemon/tensor/random.h"

namespace gaccd::nn {
namespace {

// [-1, 1) from the top 24 bits: every value is exact in f32.
double UniformValue(std::uint64_t bits) {
  return 2 * (static_cast<double>(bits >> 40) * 0x1p-24) - 1;
}

}  // namespace

void Initialize(const Initializer& initializer, std::uint64_t seed, ParameterIndex index,
                std::span<float> values) {
  const std::uint64_t key = StreamKey(seed, index);
  switch (initializer.kind) {
    case Initializer::Kind::kConstant:
      std::ranges::fill(values, static_cast<float>(initializer.scale));
      return;
    case Initializer::Kind::kUniform:
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(UniformValue(StreamValue(key, i)) * initializer.scale);
      }
      return;
    case Initializer::Kind::kNormal:
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(StandardNormal(key, i) * initializer.scale);
      }
      return;
  }
}

}  // namespace gaccd::nn
