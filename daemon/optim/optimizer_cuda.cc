#include "daemon/optim/optimizer_cuda.h"

#include <cstdint>
#include <variant>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/optim/kernels_cuda.h"
#include "daemon/optim/rules.h"

namespace gaccd {
namespace {

Status CheckAligned(const void* memory, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(memory) % 16 == 0) return Status::Ok();
  return {ErrorKind::kInternal,
          StrCat("optimizer: ", what, ": expected an address that is a multiple of 16, found ",
                 memory)};
}

SgdRule RuleOf(const SgdSpec& spec) {
  if (spec.momentum == 0) return SgdRule::kPlain;
  return spec.nesterov ? SgdRule::kNesterov : SgdRule::kMomentum;
}

}  // namespace

CudaOptimizer::CudaOptimizer(const OptimizerSpec& spec, const Buffers& buffers)
    : spec_(spec), buffers_(buffers) {}

Result<std::unique_ptr<CudaOptimizer>> CudaOptimizer::Create(const OptimizerSpec& spec,
                                                             const Buffers& buffers) {
  GACCD_RETURN_IF_ERROR(CheckOptimizer(spec, buffers.elements));
  if (buffers.state == nullptr && StateElements(spec, buffers.elements) > 0) {
    return Status(ErrorKind::kInternal,
                  StrCat("optimizer: expected ", StateElements(spec, buffers.elements),
                         " values of state, found no memory"));
  }
  GACCD_RETURN_IF_ERROR(CheckAligned(buffers.parameters, "parameters"));
  GACCD_RETURN_IF_ERROR(CheckAligned(buffers.gradient, "gradient"));
  GACCD_RETURN_IF_ERROR(CheckAligned(buffers.state, "state"));
  GACCD_RETURN_IF_ERROR(CheckAligned(buffers.bf16_copy, "bf16 copy"));
  if (std::holds_alternative<AdamWSpec>(spec.kind)) {
    GACCD_RETURN_IF_ERROR(CheckAligned(buffers.state + buffers.elements, "second moments"));
  }
  return std::unique_ptr<CudaOptimizer>(new CudaOptimizer(spec, buffers));
}

void CudaOptimizer::Prepare(double lr, UpdateWish* wish) {
  ++updates_;
  std::visit(
      Overloaded{[&](const SgdSpec& sgd) { wish->sgd = FactorsOf(sgd, lr); },
                 [&](const AdamWSpec& adamw) { wish->adamw = FactorsOf(adamw, lr, updates_); }},
      spec_.kind);
}

Status CudaOptimizer::Step(cudaStream_t stream, UpdateControl* control) {
  if (buffers_.elements == 0) return Status::Ok();
  return std::visit(
      Overloaded{
          [&](const SgdSpec& sgd) { return EnqueueSgd(stream, RuleOf(sgd), buffers_, control); },
          [&](const AdamWSpec&) { return EnqueueAdamW(stream, buffers_, control); }},
      spec_.kind);
}

}  // namespace gaccd
