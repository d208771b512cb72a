#include "daemon/inspect/export/run_figures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "collectives/base/result.h"

namespace gaccd {
namespace {

// Events at which all previous work is complete, besides updates. A heartbeat, log line or save may
// be within an update or the loading of a checkpoint.
constexpr std::string_view kEnds[] = {"starting", "resume", "eval", "verdict"};

}  // namespace

void FigureSum::Add(const Event& event) {
  if (event.attempt != attempt_) BeginAttempt(event);
  if (!last_ || *last_ < event.at) last_ = event.at;
  if (event.name == "run_start") figures_.start = event;
  if (event.name == "plan") {
    const auto differs = [&](const char* key) {
      return figures_.plan && figures_.plan->Whole(key) != event.Whole(key);
    };
    if (differs("world") || differs("target_batch")) figures_.target.reset();
    figures_.plan = event;
    figures_.rebalance.reset();
  }
  if (event.name == "target") figures_.target = event;
  if (event.name == "rebalance") figures_.rebalance = event;
  if (event.name == "step" || event.name == "thinned") AddSteps(event);
  if (event.name == "save") AddSave(event);
  if (event.name == "failure") AddFailure(event);
  if (event.name == "log") ++figures_.log_lines[std::string(event.Text("lvl"))];
  if (event.name == "resume") {
    RewindTo(event.Whole("step").value_or(0));
    loaded_s_ += event.NotNegative("dur_s");
    Bad(Badput::kCheckpointLoad) += event.NotNegative("dur_s");
  }
  if (event.name == "eval") {
    // An evaluation has a line per metric, one of them for its loss.
    figures_.phase_s["eval"] += event.Text("metric") == "loss" ? event.NotNegative("dur_s") : 0;
    // A value that is not finite is null, and still the newest.
    if (event.Find("value")) {
      constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
      const std::string metric(event.Text("metric"));
      std::vector<Evaluation>& known = evaluations_[metric];
      if (known.size() == kKeptEvaluations) known.erase(known.begin());
      known.push_back({event.Whole("step").value_or(0), event.Number("value").value_or(kNan)});
    }
  }
  const bool has_updates = event.name == "step" || event.name == "thinned";
  if (has_updates || std::ranges::find(kEnds, event.name) != std::end(kEnds)) until_ = event.at;
  // Not at updates, so that thinned events (ThinEvents()) give the same sum.
  if (has_step_ && !has_updates) CountOther(until_);
}

double FigureSum::InitSeconds(WallTime until) const {
  return has_step_ ? 0 : std::max(0.0, SecondsBetween(attempt_begin_, until) - loaded_s_);
}

void FigureSum::CountOther(WallTime until) {
  double other = Elapsed(until) - figures_.good_s;
  for (const double bad : figures_.badput_s) other -= bad;
  Bad(Badput::kOther) += std::max(0.0, other);
}

void FigureSum::BeginAttempt(const Event& event) {
  if (last_) {
    Bad(Badput::kInit) += InitSeconds(*last_);
    CountOther(*last_);
    const double recovery_s = std::max(0.0, SecondsBetween(*last_, event.at));
    Bad(Badput::kRecovery) += recovery_s;
    earlier_s_ = Elapsed(*last_) + recovery_s;
  }
  attempt_ = event.attempt;
  attempt_begin_ = event.at;
  until_ = event.at;
  has_step_ = false;
  loaded_s_ = 0;
  last_ = event.at;
  if (!figures_.begin) figures_.begin = event.at;
}

void FigureSum::RewindTo(std::int64_t step) {
  went_back_too_far_ |= std::cmp_less(step, unknown_);
  for (; std::cmp_less(step, done_s_.size()) && !done_s_.empty(); done_s_.pop_back()) {
    if (std::isnan(done_s_.back())) continue;
    ++figures_.lost_updates;
    figures_.good_s -= done_s_.back();
    Bad(Badput::kLostProgress) += done_s_.back();
  }
  if (figures_.target && figures_.target->Whole("step").value_or(0) > step) figures_.target.reset();
  for (auto& [metric, known] : evaluations_) {
    while (!known.empty() && known.back().step > step) known.pop_back();
  }
}

void FigureSum::AddSteps(const Event& event) {
  const StepSum sum = StepSum::FromEvent(event);
  if (sum.updates == 0) return;
  const double dur_s = sum.dur_s.sum;
  if (!std::exchange(has_step_, true)) {
    const double before = SecondsBetween(attempt_begin_, event.at) - dur_s - loaded_s_;
    Bad(Badput::kInit) += std::max(0.0, before);
  }
  RewindTo(sum.first - 1);
  const double useful_s = dur_s - sum.data_s;
  done_s_.resize(static_cast<std::size_t>(sum.first - 1), std::nan(""));
  done_s_.resize(static_cast<std::size_t>(sum.last),
                 useful_s / static_cast<double>(sum.last - sum.first + 1));
  figures_.good_s += useful_s;
  Bad(Badput::kData) += sum.data_s;
  figures_.updates += sum.updates;
  figures_.samples += sum.samples;
  if (figures_.start)
    figures_.flops += sum.samples * figures_.start->NotNegative("flops_per_sample");
  figures_.tokens += sum.tokens;
  figures_.update_s += sum.dur_s;
  figures_.phase_s["data"] += sum.data_s;
  figures_.phase_s["forward_backward"] += sum.fwd_bwd_s;
  figures_.phase_s["reduce"] += sum.reduce_s;
  figures_.phase_s["optimizer"] += sum.opt_s;
  figures_.phase_s["wait"] += sum.wait_s;
  for (const auto& [host, count] : sum.stragglers) figures_.stragglers[host] += count;
  if (event.name != "step") return;
  figures_.step = event;
  figures_.skipped += event.Is("skipped") ? 1 : 0;
  const bool unlabelled = event.Number("divisor") == 0.0;  // the mean loss is undefined
  figures_.unlabelled += event.Is("skipped") && unlabelled ? 1 : 0;
  figures_.nonfinite_losses += event.Is("loss_finite") || unlabelled ? 0 : 1;
  // With fp16, overflows are expected: they limit the loss scale.
  const bool too_large = event.Is("loss_finite") && event.Number("loss_scale");
  figures_.nonfinite_gradients += event.Is("grad_finite") || too_large ? 0 : 1;
}

void FigureSum::AddSave(const Event& event) {
  Bad(Badput::kCheckpointSave) += event.NotNegative("stall_s");
  figures_.phase_s["checkpoint"] += event.NotNegative("stall_s");
  if (!event.Is("ok")) {
    ++figures_.failed_saves;
    return;
  }
  figures_.save = event;
  figures_.save_s.Add(event.NotNegative("dur_s"));
}

void FigureSum::AddFailure(const Event& event) {
  const auto exit = event.Whole("exit").value_or(0);
  const bool signal = event.Whole("signal").value_or(0) != 0;
  const auto kind =
      static_cast<ErrorKind>(static_cast<int>(std::clamp<std::int64_t>(exit, 0, 255)));
  ++figures_.errors[signal ? "signal" : std::string(ErrorKindName(kind))];
}

std::optional<double> RunFigures::BatchNumber(const char* target_key, const char* plan_key) const {
  if (target) return target->Number(target_key);
  return plan ? plan->Number(plan_key) : std::nullopt;
}

RunFigures FigureSum::Finish(std::size_t attempts) && {
  figures_.attempts = static_cast<std::int64_t>(attempts);
  for (const auto& [metric, known] : evaluations_) {
    if (!known.empty()) figures_.evals[metric] = known.back().value;
  }
  if (last_) figures_.elapsed_s = Elapsed(*last_);
  if (last_) Bad(Badput::kInit) += InitSeconds(until_);
  return std::move(figures_);
}

}  // namespace gaccd
