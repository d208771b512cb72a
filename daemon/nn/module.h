// Module: a part of a model. The constructor declares its parameters and creates its submodules;
// calling it records its functions. Modules are values: immutable, copyable, thread-safe.
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

// The position of a module: the names of the enclosing modules and its own, joined with dots, and
// the list of parameters of the model.
class Scope {
 public:
  explicit Scope(ParameterList& parameters, std::string path = {})
      : parameters_(&parameters), path_(std::move(path)) {}

  [[nodiscard]] Scope operator/(std::string_view name) const;
  [[nodiscard]] Scope operator/(std::int64_t number) const;

  [[nodiscard]] ParameterList& parameters() const { return *parameters_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  ParameterList* parameters_;  // must outlive every scope
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

  // Records function(inputs); errors contain the name of this module.
  ValueId Apply(Recorder& recorder, std::shared_ptr<const Function> function,
                std::vector<ValueId> inputs) const;
  void Check(Recorder& recorder, Status status) const;

 private:
  std::string path_;
};

// A module with one input and one output: an element of the layer list of a job.
class Layer : public Module {
 public:
  virtual ~Layer() = default;
  virtual ValueId operator()(Recorder& recorder, ValueId input) const = 0;

  // For layers whose input and output are vectors of fixed width per sample.
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
