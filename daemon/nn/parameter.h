// What a module declares of a parameter, and the list that takes the declarations of a whole model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/tensor/shape.h"

namespace gaccd::nn {

// How a parameter starts.
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
  std::string name;  // with the names of the modules around it: "fc1.weight"
  Shape shape;
  Initializer initializer;
  bool frozen = false;  // keeps its value
  bool buffer = false;  // its layer changes it (FlatEntry)
  // What a constant (IsConstant(name)) is, instead of what an initialiser makes.
  std::shared_ptr<const std::vector<float>> values = nullptr;
};

// The position in the list of the model, which is the order of its flat buffers.
using ParameterIndex = std::size_t;

// All parameters of a model, in the order of declaration. A tied parameter is declared once, by the
// module it is named after; the other modules are given its index.
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

// The initial values of parameter `index`: a function of the seed, the index and the position in
// the parameter alone. REQUIRES: values has the elements of `initializer`'s parameter.
void Initialize(const Initializer& initializer, std::uint64_t seed, ParameterIndex index,
                std::span<float> values);

}  // namespace gaccd::nn
