#include "daemon/telemetry/event_lines.h"

#include <cmath>
#include <cstdio>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

std::string LossText(double loss) {
  char text[64];
  const bool small = loss != 0 && std::abs(loss) < 1e-3;
  std::snprintf(text, sizeof(text), small ? "%.6g" : "%.6f", loss);
  return text;
}

}  // namespace

std::string StepLine(const StepRecord& step) {
  return StrCat("epoch: ", step.epoch, " step: ", step.step, ", loss is ", LossText(step.loss),
                " (mean of ", step.samples, " samples)",
                step.skipped ? ", update skipped: the gradient is not finite" : "");
}

std::string EvalLine(const EvalRecord& eval) {
  char accuracy[64] = "";
  if (eval.accuracy) {
    std::snprintf(accuracy, sizeof(accuracy), "accuracy is %.4f, ", *eval.accuracy);
  }
  return StrCat("epoch: ", eval.epoch, " eval: ", accuracy, "loss is ", LossText(eval.loss),
                " (mean of ", eval.samples, " samples)");
}

std::string ResumeLine(const ResumeRecord& resume) {
  return StrCat("goes on after update ", resume.step, ", from checkpoint ", resume.generation);
}

}  // namespace gaccd
