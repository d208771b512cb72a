#include "daemon/selftest/contrastive_gradient.h"

#include <cstddef>

#include "collectives/base/host_buffer.h"
#include "collectives/base/strings.h"
#include "daemon/engine/contrastive_window.h"
#include "daemon/replica/replica.h"
#include "daemon/selftest/micro_batch_sizes.h"

namespace gaccd {
namespace {

// Multiplies every second value by `factor`: the cosines of many networks do not change if all
// parameters have a common factor.
Status SetParameters(Replica& replica, std::span<const float> parameters, float factor) {
  const std::span<float> to = replica.parameters();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = parameters[i] * (i % 2 == 0 ? 1 : factor);
  return replica.ParametersChanged();
}

}  // namespace

std::string_view Name(ContrastiveMistake mistake) {
  switch (mistake) {
    case ContrastiveMistake::kNone:
      return "gaccd";
    case ContrastiveMistake::kWorldFactor:
      return "world-size factor";
    case ContrastiveMistake::kLocalNegatives:
      return "local negatives only";
    case ContrastiveMistake::kScaleKFold:
      return "temperature k-fold";
    case ContrastiveMistake::kStaleRows:
      return "stale features";
    case ContrastiveMistake::kLastOnly:
      return "last micro-batch only";
  }
  return "";
}

bool HasEffect(ContrastiveMistake mistake, const Plan& plan) {
  switch (mistake) {
    case ContrastiveMistake::kNone:
      return false;
    case ContrastiveMistake::kWorldFactor:
    case ContrastiveMistake::kLocalNegatives:
      return plan.world() > 1;
    case ContrastiveMistake::kStaleRows:
      return true;
    case ContrastiveMistake::kScaleKFold:
      return plan.accum_steps() > 1;
    case ContrastiveMistake::kLastOnly:
      return plan.accum_steps() > 1 && plan.ranks_hi_samples() > 1;
  }
  return false;
}

Result<std::vector<float>> ContrastiveGradient(Communicator& comm, const Model& model,
                                               std::span<const float> parameters, const Plan& plan,
                                               Prefetcher& batches, ContrastiveMistake mistake) {
  const auto is = [mistake](ContrastiveMistake other) { return mistake == other; };
  GACCD_ASSIGN_OR_RETURN(const HostBuffer memory,
                         HostBuffer::Allocate(parameters.size_bytes(), "gradients"));
  const std::span gradients(reinterpret_cast<float*>(memory.data()), parameters.size());
  GACCD_ASSIGN_OR_RETURN(auto replica,
                         Replica::Create(model, gradients, MicroBatchSizes(plan, comm.rank())));
  const ContrastiveModel loss = *model.contrastive();
  ContrastiveWindow window(loss, plan.effective_batch(), plan.Load(comm.rank()));

  GACCD_RETURN_IF_ERROR(
      SetParameters(*replica, parameters, is(ContrastiveMistake::kStaleRows) ? 0.99F : 1.0F));
  for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
    const BatchView* batch = batches.Next();
    GACCD_RETURN_IF_ERROR(replica->Encode(*batch, window.Append(batch->samples)));
  }
  GACCD_RETURN_IF_ERROR(SetParameters(*replica, parameters, 1));

  const auto scale = static_cast<std::size_t>(loss.log_scale);
  const auto alone = MakeSingle();
  Communicator& compared = is(ContrastiveMistake::kLocalNegatives) ? *alone : comm;
  GACCD_RETURN_IF_ERROR(window.ComputeContrastiveLoss(compared, double{parameters[scale]}));
  const std::int64_t filled = plan.FilledSteps(comm.rank());
  for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
    const BatchView* batch = batches.Next();
    GACCD_ASSIGN_OR_RETURN(const float* rows, window.Next(batch->samples));
    const bool first = step == 0 || (is(ContrastiveMistake::kLastOnly) && step < filled);
    GACCD_RETURN_IF_ERROR(replica->Replay(*batch, rows, first));
  }
  const bool k_fold = is(ContrastiveMistake::kScaleKFold);
  gradients[scale] = static_cast<float>(window.sums().log_scale_gradient *
                                        static_cast<double>(k_fold ? plan.accum_steps() : 1));
  float factor = 1;
  if (is(ContrastiveMistake::kWorldFactor)) factor = static_cast<float>(comm.size());
  if (is(ContrastiveMistake::kLocalNegatives)) {
    factor =
        static_cast<float>(plan.Load(comm.rank())) / static_cast<float>(plan.effective_batch());
  }
  for (float& gradient : gradients) gradient *= factor;
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(gradients), View(gradients)));
  return std::vector<float>(gradients.begin(), gradients.end());
}

}  // namespace gaccd
