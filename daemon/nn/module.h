// Module: a part of a model. Its constructor declares its parameters and makes the modules within
// it; calling it records its functions. Modules are values: immutable, copyable, any thread may use
// them.
//
//   Mlp::Mlp(const Scope& scope, std::int64_t width)
//       : Module(scope), fc_(scope / "c_fc", width, 4 * width), proj_(scope / "c_proj", ...) {}
//   ValueId Mlp::operator()(Recorder& recorder, ValueId x) const {
//     return proj_(recorder, Gelu(recorder, fc_(recorder, x)));
//   }
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/nn/parameter.h"
#include "daemon/nn/recorder.h"

namespace gaccd::nn {

// The place of a module: the names of the modules around it and its own, joined with dots, and the
// list that takes its parameters.
class Scope {
 public:
  explicit Scope(ParameterList& parameters, std::string path = {})
      : parameters_(&parameters), path_(std::move(path)) {}

  [[nodiscard]] Scope operator/(std::string_view name) const;
  [[nodiscard]] Scope operator/(std::int64_t number) const;

  [[nodiscard]] ParameterList& parameters() const { return *parameters_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  ParameterList* parameters_;  // outlives every scope
  std::string path_;
};

class Module {
 public:
  // "transformer.h.0.attn"
  [[nodiscard]] const std::string& path() const { return path_; }

 protected:
  explicit Module(const Scope& scope) : path_(scope.path()) {}
  Module(const Module&) = default;
  Module& operator=(const Module&) = default;
  ~Module() = default;

  // `spec.name` is the last part of the name.
  static ParameterIndex Declare(const Scope& scope, ParameterSpec spec);

  // Records function(inputs); a refusal names this module.
  ValueId Apply(Recorder& recorder, std::shared_ptr<const Function> function,
                std::vector<ValueId> inputs) const;
  void Check(Recorder& recorder, Status status) const;

 private:
  std::string path_;
};

// A module with one input and one output: what the list of layers of a job is made of.
class Layer : public Module {
 public:
  virtual ~Layer() = default;
  virtual ValueId operator()(Recorder& recorder, ValueId input) const = 0;

  // For a layer that takes and gives vectors of a fixed width a sample.
  struct Widths {
    std::int64_t in = 0;
    std::int64_t out = 0;
  };
  [[nodiscard]] virtual std::optional<Widths> widths() const { return std::nullopt; }

 protected:
  explicit Layer(const Scope& scope) : Module(scope) {}
  Layer(const Layer&) = default;
  Layer& operator=(const Layer&) = default;
};

}  // namespace gaccd::nn
