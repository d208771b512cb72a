#include "daemon/export/run_figures.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "collectives/base/result.h"

namespace gaccd {
namespace {

double Seconds(const Event& event, std::string_view key) {
  return std::max(0.0, event.Number(key).value_or(0));
}

}  // namespace

void Histogram::Add(double seconds) {
  for (std::size_t i = 0; i < kBounds.size(); ++i) below[i] += seconds <= kBounds[i] ? 1 : 0;
  ++count;
  sum += seconds;
}

void FigureSum::Add(const Event& event) {
  if (event.attempt != attempt_) BeginAttempt(event);
  if (!last_ || *last_ < event.at) last_ = event.at;
  if (event.name == "run_start") figures_.start = event;
  if (event.name == "plan") figures_.plan = event;
  if (event.name == "step") AddStep(event);
  if (event.name == "save") AddSave(event);
  if (event.name == "failure") AddFailure(event);
  if (event.name == "log") ++figures_.log_lines[std::string(event.Text("lvl"))];
  if (event.name == "resume") {
    GoBackTo(event.Whole("step").value_or(0));
    loaded_s_ += Seconds(event, "dur_s");
    Bad(Badput::kCheckpointLoad) += Seconds(event, "dur_s");
  }
  if (event.name == "eval") {
    // An evaluation has a line for each metric, one of them for its loss.
    figures_.phase_s["eval"] += event.Text("metric") == "loss" ? Seconds(event, "dur_s") : 0;
    if (const auto value = event.Number("value")) {
      figures_.evals[std::string(event.Text("metric"))] = *value;
    }
  }
}

void FigureSum::BeginAttempt(const Event& event) {
  attempt_ = event.attempt;
  attempt_begin_ = event.at;
  has_step_ = false;
  loaded_s_ = 0;
  ++figures_.attempts;
  if (!figures_.begin) figures_.begin = event.at;
  if (last_) Bad(Badput::kRecovery) += std::max(0.0, SecondsBetween(*last_, event.at));
}

void FigureSum::GoBackTo(std::int64_t step) {
  for (; std::cmp_less(step, done_s_.size()) && !done_s_.empty(); done_s_.pop_back()) {
    ++figures_.lost_updates;
    figures_.good_s -= done_s_.back();
    Bad(Badput::kLostProgress) += done_s_.back();
  }
}

void FigureSum::AddStep(const Event& event) {
  constexpr std::pair<const char*, const char*> kPhases[] = {{"data", "data_s"},
                                                             {"forward_backward", "fwd_bwd_s"},
                                                             {"reduce", "reduce_s"},
                                                             {"optimizer", "opt_s"},
                                                             {"wait", "wait_s"}};
  const std::int64_t step = event.Whole("step").value_or(0);
  if (step < 1 || step > kMostSteps) return;
  const double dur_s = Seconds(event, "dur_s");
  const double data_s = std::min(dur_s, Seconds(event, "data_s"));
  if (!std::exchange(has_step_, true)) {
    const double before = SecondsBetween(attempt_begin_, event.at) - dur_s - loaded_s_;
    Bad(Badput::kInit) += std::max(0.0, before);
  }
  GoBackTo(step - 1);
  done_s_.resize(static_cast<std::size_t>(step));
  done_s_.back() = dur_s - data_s;
  figures_.good_s += dur_s - data_s;
  Bad(Badput::kData) += data_s;
  figures_.step = event;
  ++figures_.updates;
  const double samples = Seconds(event, "samples");
  figures_.samples += samples;
  if (figures_.start) figures_.flops += samples * Seconds(*figures_.start, "flops_per_sample");
  if (event.Text("unit") == "tokens") figures_.tokens += Seconds(event, "divisor");
  figures_.skipped += event.Is("skipped") ? 1 : 0;
  const bool unlabelled = event.Number("divisor") == 0.0;  // its loss is a mean over nothing
  figures_.nonfinite_losses += event.Is("loss_finite") || unlabelled ? 0 : 1;
  figures_.nonfinite_gradients += event.Is("grad_finite") ? 0 : 1;
  figures_.update_s.Add(dur_s);
  for (const auto& [name, key] : kPhases) figures_.phase_s[name] += Seconds(event, key);
  if (const auto host = event.Text("straggler_host"); !host.empty()) {
    ++figures_.stragglers[std::string(host)];
  }
}

void FigureSum::AddSave(const Event& event) {
  Bad(Badput::kCheckpointSave) += Seconds(event, "stall_s");
  figures_.phase_s["checkpoint"] += Seconds(event, "stall_s");
  if (!event.Is("ok")) {
    ++figures_.failed_saves;
    return;
  }
  figures_.save = event;
  figures_.save_s.Add(Seconds(event, "dur_s"));
}

void FigureSum::AddFailure(const Event& event) {
  const auto exit = event.Whole("exit").value_or(0);
  const bool signal = event.Whole("signal").value_or(0) != 0;
  const auto kind =
      static_cast<ErrorKind>(static_cast<int>(std::clamp<std::int64_t>(exit, 0, 255)));
  ++figures_.errors[signal ? "signal" : std::string(ErrorKindName(kind))];
}

RunFigures FigureSum::Take() && {
  RunFigures& figures = figures_;
  if (last_) figures.elapsed_s = std::max(0.0, SecondsBetween(*figures.begin, *last_));
  const double known =
      std::accumulate(figures.badput_s.begin(), figures.badput_s.end(), figures.good_s);
  Bad(Badput::kOther) += std::max(0.0, figures.elapsed_s - known);
  return std::move(figures_);
}

}  // namespace gaccd
