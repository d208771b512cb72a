#include "daemon/nn/module.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"

namespace gaccd::nn {
namespace {

std::string Join(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : StrCat(path, ".", name);
}

}  // namespace

Scope Scope::operator/(std::string_view name) const {
  return Scope(*parameters_, Join(path_, name));
}

Scope Scope::operator/(std::int64_t number) const { return *this / std::to_string(number); }

ParameterIndex Module::Declare(const Scope& scope, ParameterSpec spec) {
  spec.name = Join(scope.path(), spec.name);
  return scope.parameters().Declare(std::move(spec));
}

ValueId Module::Apply(Recorder& recorder, std::shared_ptr<const Function> function,
                      std::vector<ValueId> inputs) const {
  return recorder.Apply(StrCat("layer '", path_, "'"), std::move(function), std::move(inputs));
}

void Module::Check(Recorder& recorder, Status status) const {
  recorder.Check(StrCat("layer '", path_, "'"), std::move(status));
}

}  // namespace gaccd::nn
