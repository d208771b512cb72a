// The declaration of a parameter by a module, and the list of all declarations of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/tensor/shape.h"

namespace gaccd::nn {

// Initial values of a parameter.
struct Initializer {
  enum class Kind : std::uint8_t {
    kConstant,  // `scale` everywhere
    kUniform,   // uniform in [-scale, scale)
    kNormal,    // normal with mean 0 and standard deviation `scale`
  };
  Kind kind = Kind::kConstant;
  double scale = 0;
};
[[nodiscard]] constexpr Initializer Constant(double value) {
  return {Initializer::Kind::kConstant, value};
}
[[nodiscard]] constexpr Initializer Uniform(double limit) {
  return {Initializer::Kind::kUniform, limit};
}
[[nodiscard]] constexpr Initializer Normal(double deviation) {
  return {Initializer::Kind::kNormal, deviation};
}

struct ParameterSpec {
  std::string name;  // with the names of the enclosing modules: "fc1.weight"
  Shape shape;
  Initializer initializer;
  bool frozen = false;  // value is constant
  bool buffer = false;  // changed by its layer (FlatEntry)
  // The values of a constant (IsConstant(name)), instead of an initialiser.
  std::shared_ptr<const std::vector<float>> values = nullptr;
};

// Index in the list of the model, which is the order of its flat buffers.
using ParameterIndex = std::size_t;

// All parameters of a model, in the order of declaration. A tied parameter is declared once, by the
// module it is named after; other modules are given its index.
class ParameterList {
 public:
  ParameterIndex Declare(ParameterSpec spec) {
    specs_.push_back(std::move(spec));
    return specs_.size() - 1;
  }
  [[nodiscard]] std::span<const ParameterSpec> specs() const { return specs_; }

 private:
  std::vector<ParameterSpec> specs_;
};

// Computes the initial values of parameter `index`, which depend only on the seed, the index and
// the position in the parameter. REQUIRES: values has the elements of `initializer`'s parameter.
void Initialize(const Initializer& initializer, std::uint64_t seed, ParameterIndex index,
                std::span<float> values);

}  // namespace gaccd::nn
