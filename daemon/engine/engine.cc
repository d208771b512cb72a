#include "daemon/engine/engine.h"

#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/engine/engine_checks.h"

namespace gaccd {
namespace {

Status NotContrastive() {
  return {ErrorKind::kInternal, "the loss of this engine is not contrastive"};
}

}  // namespace

Result<std::unique_ptr<Engine>> MakeEngine(Communicator& comm, const Model& model,
                                           const EngineOptions& options) {
  switch (options.choice.device) {
    case Device::kCpu:
      return MakeCpuEngine(comm, model, options);
    case Device::kCuda:
      return MakeCudaEngine(comm, model, options);
    case Device::kAuto:
      break;
  }
  return Status(ErrorKind::kInternal,
                StrCat("engine: expected cpu or cuda, found ", Name(options.choice.device)));
}

Status Engine::Encode(const BatchView& /*batch*/) { return NotContrastive(); }
Status Engine::ComputeContrastiveLoss() { return NotContrastive(); }

Status CheckCount(std::string_view what, std::size_t expected, std::size_t found) {
  if (expected == found) return Status::Ok();
  return {ErrorKind::kInternal, StrCat(what, ": expected ", expected, " elements, found ", found)};
}

Status CheckRange(std::int64_t first, std::size_t count, std::size_t elements) {
  if (first >= 0 && static_cast<std::size_t>(first) <= elements &&
      count <= elements - static_cast<std::size_t>(first)) {
    return Status::Ok();
  }
  return {ErrorKind::kInternal, StrCat("expected a range within ", elements, " elements, found ",
                                       count, " from ", first, " on")};
}

Status CheckFinite(double loss, bool gradient_finite, double divisor) {
  if (!(divisor > 0) || std::isinf(divisor)) {
    return {
        ErrorKind::kData,
        StrCat("every label in this update is ignored (-100 or weight 0): nothing to train on; the "
               "sum of weights is ",
               divisor)};
  }
  if (std::isfinite(loss) && gradient_finite) return Status::Ok();
  return {ErrorKind::kNoRequeue,
          StrCat("training diverged: the loss is ", loss, ", the gradient is ",
                 gradient_finite ? "finite" : "not finite")};
}

Status CheckProbe(const Model& model) {
  if (!model.has_collectives()) return Status::Ok();
  return {ErrorKind::kNoRequeue,
          "a micro-batch of a model with collective operations cannot be computed by itself"};
}

Status ResultNotTaken() {
  return {ErrorKind::kInternal, "an update begins before the results of the last one were read"};
}

}  // namespace gaccd
