#include "daemon/train/update.h"

#include <chrono>
#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/optim/norm.h"

namespace gaccd {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds since the last call.
class LapTimer {
 public:
  double Lap() {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  Clock::time_point last_ = Clock::now();
};

Status CheckFinite(double loss, const GradientNorm& gradient) {
  if (std::isfinite(loss) && gradient.finite) return Status::Ok();
  return {ErrorKind::kNoRequeue,
          StrCat("training diverged: the loss is ", loss, ", the gradient is ",
                 gradient.finite ? "finite" : "not finite")};
}

}  // namespace

Result<UpdateFigures> RunUpdate(const UpdateParts& parts, const Plan& plan,
                                const UpdateSettings& settings) {
  UpdateFigures figures;
  LapTimer timer;
  GACCD_ASSIGN_OR_RETURN(const double weight, InverseCount(plan.effective_batch()));

  // 1. k micro-steps: forward, backward, accumulate. No communication. Every sample weighs 1/D, D
  //    the count of the whole update, so that ragged micro-batches and ranks need no correction.
  double loss_sum = 0;
  for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
    const BatchView* batch = parts.batches.Next();
    figures.data_s += timer.Lap();
    if (batch == nullptr) {
      return Status(ErrorKind::kInternal,
                    StrCat("no micro-batch for micro-step ", step + 1, " of ", plan.accum_steps()));
    }
    GACCD_ASSIGN_OR_RETURN(
        const double loss,
        parts.replica.MicroStep(*batch, static_cast<float>(weight), /*first=*/step == 0));
    loss_sum += loss;
    parts.ledger.Add(batch->samples);
    figures.fwd_bwd_s += timer.Lap();
  }

  // 2. Reduce once: gradients are sums, so the reduction is a plain sum.
  GACCD_RETURN_IF_ERROR(parts.reducer.ReduceAll());
  const auto loss = View(std::span<double>(&loss_sum, 1));
  GACCD_RETURN_IF_ERROR(parts.comm.AllReduceSum(loss, loss));
  figures.loss = loss_sum * weight;
  figures.reduce_s = timer.Lap();

  // 3. There is no loss scale to undo in fp32. Check finite.  4. Global norm, in the same pass.
  const std::span<const float> gradients = parts.replica.gradients();
  const GradientNorm gradient = GlobalNorm(gradients);
  GACCD_RETURN_IF_ERROR(CheckFinite(figures.loss, gradient));
  figures.grad_norm = gradient.norm;

  // 5. Clip once, after the reduction.  6. Optimiser step.
  parts.optimizer.Step(parts.replica.parameters(), gradients, settings.lr,
                       ClipFactor(gradient.norm, settings.clip_norm));
  GACCD_RETURN_IF_ERROR(parts.replica.ParametersChanged());

  // 7. Reset accumulators: the first micro-step of the next update overwrites them.
  GACCD_RETURN_IF_ERROR(parts.reducer.NextCycle());

  // 8. Audit: the samples that all ranks counted equal the plan, or the run stops.
  GACCD_RETURN_IF_ERROR(parts.ledger.Audit(parts.comm, plan.effective_batch()));
  figures.samples = plan.effective_batch();
  figures.opt_s = timer.Lap();
  figures.dur_s = figures.data_s + figures.fwd_bwd_s + figures.reduce_s + figures.opt_s;
  return figures;
}

}  // namespace gaccd
