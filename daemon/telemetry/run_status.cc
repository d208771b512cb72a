#include "daemon/telemetry/run_status.h"

#include <cmath>
#include <limits>
#include <utility>

#include "daemon/config/flat_json.h"
#include "daemon/plan/speeds.h"
#include "daemon/telemetry/event_text.h"

namespace gaccd {

void RunStatus::VisitFields(auto& fields, auto& status) {
  auto& last = status.last;
  const bool has_step = last.steps_total > 0;
  fields.Computed("v", kLineVersion);
  fields("ts", status.ts);
  fields.Text("run", status.identity.run, kMaxName);
  fields.Text("job", status.identity.job, kMaxName);
  fields("attempt", status.identity.attempt);
  fields.Text("attempt_dir", status.attempt_dir, kMaxList);
  fields.Text("host", status.identity.host, kMaxName);
  fields.NotZero("pid", status.pid);
  fields("state", status.state);
  fields("world", status.world);
  fields.When(has_step, [&] { fields("epoch", last.epoch); });
  fields.When(last.step > 0, [&] { fields("step", last.step); });
  fields.When(has_step, [&] {
    fields("steps_total", last.steps_total);
    fields("target", last.target);
  });
  fields.When(last.step > 0, [&] { fields("samples_total", last.samples_total); });
  fields.When(has_step, [&] {
    fields("loss", last.loss);
    fields.Computed("loss_finite", std::isfinite(last.loss));
    fields("samples_per_s", last.rates.samples_per_s);
    fields("dur_p50_s", last.rates.dur_p50_s);
    fields("eta_s", last.rates.eta_s);
    fields("wall_samples_per_s", last.rates.wall_samples_per_s);
    fields("last_step_ts", status.last_step_ts);
  });
  fields.NotZero("eval_step", status.last_eval.step);
  fields.When(status.last_eval.step > 0, [&] {
    fields("eval_loss", status.last_eval.loss);
    for (const MetricValue& metric : status.last_eval.metrics) {
      fields.Computed("eval_" + metric.name, metric.value);
    }
  });
  fields.Group("best_value", status.best, [&](auto& best) {
    fields("best_metric", best.metric);
    fields("best_value", best.value);
    fields("best_step", best.step);
  });
  fields("write_errors", status.write_errors);
  fields("exit", status.exit);
  fields.Text("reason", status.reason, kMaxMessage);
  fields.Text("suspect_hosts", status.suspect_hosts, kMaxList);
  fields.Text("device", status.device, kMaxName);
  fields.Text("gpu", status.gpu, kMaxName);
  fields.Text("loads", status.loads, kMaxList);
  fields.NotZero("loads_step", status.loads_step);
  fields("dropped_lines", status.dropped_lines);
  fields("save_step", status.save_step);
  fields.Text("save_ts", status.save_ts, kMaxName);
  fields.NotZero("failed_saves", status.failed_saves);
}

std::string StatusJson(RunStatus status) {
  status.ts = Timestamp();
  JsonObject out;
  RunStatus::VisitFields(out, std::as_const(status));
  return out.Finish();
}

std::optional<RunStatus> ReadStatus(std::string_view text) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const std::optional<Json> object = Json::ParseObject(text);
  if (!object) return std::nullopt;
  RunStatus status{.state = {}, .world = 0};
  status.last.epoch = 0;
  status.last.loss = kNone;
  JsonFields fields(*object);
  RunStatus::VisitFields(fields, status);
  constexpr std::string_view kEval = "eval_";
  for (const auto& [key, value] : *object->object()) {
    if (!key.starts_with(kEval) || key == "eval_step" || key == "eval_loss") continue;
    const std::optional<double> number = value.is_null() ? kNone : value.number();
    if (number) status.last_eval.metrics.push_back({key.substr(kEval.size()), *number});
  }
  return status.state.empty() ? std::nullopt : std::optional(std::move(status));
}

void Apply(const RunStart& start, RunStatus& status) {
  status.device = start.device;
  status.gpu = start.gpu;
}

void Apply(const PlanRecord& plan, RunStatus& status) {
  status.loads = LoadsText(plan.plan);
  status.loads_step = 0;
}

void Apply(const RebalanceRecord& change, RunStatus& status) {
  status.loads = change.loads;
  status.loads_step = change.step;
}

void Apply(const TargetRecord& change, RunStatus& status) {
  status.loads = change.loads;
  status.loads_step = change.step;
}

void Apply(const StepRecord& update, RunStatus& status) {
  status.state = "running";
  status.last = update;
  status.last_step_ts = Timestamp();
}

void Apply(const EvalRecord& eval, RunStatus& status) {
  status.last_eval = eval;
  status.best = eval.best;
}

void Apply(const ResumeRecord& resume, RunStatus& status) {
  status.last.step = resume.step;
  status.last.samples_total = resume.samples_total;
  status.best = resume.best;
}

void Apply(const SaveRecord& save, RunStatus& status) {
  status.failed_saves = save.failed_in_row;
  if (!save.reason.empty()) return;
  status.save_step = save.step;
  status.save_ts = Timestamp();
}

void Apply(const Verdict& verdict, RunStatus& status) {
  status.state = verdict.verdict == "done" ? "done" : "failed";
  status.exit = verdict.exit;
  status.reason = verdict.reason;
  status.suspect_hosts = verdict.suspect_hosts;
}

}  // namespace gaccd
