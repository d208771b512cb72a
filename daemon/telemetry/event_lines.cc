#include "daemon/telemetry/event_lines.h"

#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/telemetry/progress.h"

namespace gaccd {
namespace {

// With `digits` decimals, or in scientific notation if very small or large.
std::string RoundedText(double value, int digits) {
  const double size = std::abs(value);
  const bool plain = value == 0 || (1e-3 <= size && size < 1e12);
  return Format(plain ? "%.*f" : "%.*g", plain ? digits : 4, WithoutNanSign(value));
}

std::string LossText(double loss) { return RoundedText(loss, 6); }

// "mean of 51234 tokens".
std::string MeanText(double divisor, std::string_view unit) {
  const std::string text = Format("%.10g", divisor);
  if (unit == "weights") return StrCat("weighted mean; the weights sum to ", text);
  return StrCat("mean of ", text, " ", unit);
}

}  // namespace

std::string StepLine(const StepRecord& step, double samples_per_s, double elapsed_s) {
  const std::string place = StrCat("epoch: ", step.epoch, " step: ", step.step);
  if (step.skipped && step.divisor == 0) return place + ", update skipped: no label of it counts";
  const std::string start =
      StrCat(place, ", loss is ", LossText(step.loss),
             step.unit == "samples" ? "" : " (" + MeanText(step.divisor, step.unit) + ")");
  if (step.skipped) return start + ", update skipped: the gradient is not finite";
  return StrCat(start, Format(", lr %.3g, ", step.lr), RateText(samples_per_s), " samples/s, ",
                DurationText(elapsed_s));
}

std::string EventLine(const EvalRecord& eval) {
  return StrCat("epoch: ", eval.epoch, " eval: ", EvalText(eval));
}

std::string EvalText(const EvalRecord& eval) {
  const std::string metrics = MetricsText(eval.metrics, " is ");
  const std::string_view comma = metrics.empty() ? "" : ", ";
  const std::string loss =
      StrCat("loss is ", LossText(eval.loss), " (", MeanText(eval.divisor, eval.unit), ")");
  // Weights only apply to the loss, so it precedes the metrics.
  return eval.unit == "weights" ? loss + StrCat(comma, metrics) : StrCat(metrics, comma, loss);
}

std::string MetricsText(std::span<const MetricValue> metrics, std::string_view between) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    text += StrCat(text.empty() ? "" : ", ", name, between, RoundedText(value, 4));
  }
  return text;
}

std::string EventLine(const ResumeRecord& resume) {
  // The micro-steps are those of the cluster that saved it: the loads of this one may be others.
  const std::string inside =
      resume.micro_step > 0
          ? StrCat(" and ", Counted(resume.micro_step, "micro-step"), " of the next one")
          : std::string();
  return StrCat("resumed after update ", resume.step, inside, ", from checkpoint ",
                resume.generation);
}

std::string EventLine(const RebalanceRecord& change) {
  return StrCat("loads after update ", change.step, ": an update should become ",
                Format("%.2f", change.gain_ratio), " times as fast; ", change.loads_before, " -> ",
                change.loads);
}

std::string EventLine(const TargetRecord& change) {
  return StrCat("effective batch after update ", change.step, " (", change.samples_total,
                " samples): ", change.target_before, " -> ", change.target, ", loads ",
                change.loads, " in ", Counted(change.accum_steps, "micro-step"));
}

std::string EventLine(const NoiseScaleRecord& noise) {
  const std::string start = StrCat("noise scale after update ", noise.step, ": ");
  const std::string end = StrCat(" (exponential mean of ", noise.measured, " measurements)");
  if (!noise.noise_scale) return start + "too noisy to tell yet" + end;
  const bool larger = *noise.noise_scale > static_cast<double>(noise.target);
  return StrCat(start, Format("%.3g", *noise.noise_scale), " samples, the effective batch is ",
                noise.target, ": a larger one ", larger ? "saves updates" : "saves few updates",
                end);
}

}  // namespace gaccd
