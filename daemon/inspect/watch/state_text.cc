#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/inspect/watch/run_state.h"
#include "daemon/telemetry/progress.h"

namespace gaccd {
namespace {

std::string Row(std::string_view name, const std::string& value) {
  std::string row(name);
  row.resize(std::max<std::size_t>(row.size(), 9), ' ');
  return StrCat(row, " ", value, "\n");
}

std::string Short(double value) { return Format("%.6g", value); }

std::string Ago(double seconds) { return StrCat(DurationText(seconds), " ago"); }

std::string UpdateText(const RunState& state) {
  if (state.steps_total <= 0) return StrCat("update ", state.step);
  const double share =
      100.0 * static_cast<double>(state.step) / static_cast<double>(state.steps_total);
  return StrCat("update ", state.step, " of ", state.steps_total, " (", std::floor(share), " %)");
}

std::string BestText(const RunState& state) {
  if (!state.best) return "-";
  return StrCat(state.best->metric, " ", Short(state.best->value), " @ ", state.best->step);
}

// "loss 0.329608, accuracy 0.98 @ 40".
std::string LastEvalText(const RunState& state) {
  std::string text;
  for (const MetricValue& metric : state.eval) {
    text += StrCat(text.empty() ? "" : ", ", metric.name, " ", Short(metric.value));
  }
  return StrCat(text, " @ ", state.eval_step);
}

bool IsActive(const RunState& state) {
  return state.phase == RunPhase::kRunning || state.phase == RunPhase::kStarting;
}

// "192x13,48x12 (ranks x samples of an update), since update 25".
std::string FormatLoads(const RunState& state) {
  return StrCat(state.loads, " (ranks x samples of an update)",
                state.loads_step > 0 ? StrCat(", since update ", state.loads_step) : "");
}

std::string PhaseText(const RunState& state) {
  if (state.phase == RunPhase::kSubmitted && !state.slurm.empty()) {
    return StrCat("submitted, ", state.slurm);
  }
  if (state.phase == RunPhase::kSubmitted) {
    return StrCat("submitted, not started; to see if it is still pending: squeue --jobs=",
                  state.submitted);
  }
  if (state.no_rank_yet) {
    return StrCat(Name(state.phase), ": job ", state.job, " began ", Ago(state.age_s),
                  ", and no rank has written yet");
  }
  if (state.exit) return StrCat(Name(state.phase), " ", Ago(state.age_s), ", exit ", *state.exit);
  if (!state.has_status) return std::string(Name(state.phase));
  std::string text = StrCat(Name(state.phase), ", STATUS.json was written ", Ago(state.age_s));
  if (state.phase == RunPhase::kStale) {
    text +=
        ": rank 0 or its node is gone, or the folder hangs or is full, or the clocks of the two "
        "machines differ";
  }
  return text;
}

}  // namespace

std::string StateText(const RunState& state) {
  std::string text;
  if (!state.attempt.empty()) {
    text += Row("run", StrCat(state.run, state.run.empty() ? "" : ", ", "job ", state.job,
                              ", attempt ", state.attempt));
  }
  if (state.world > 0) {
    text += Row("ranks", StrCat(state.world, state.device.empty() ? "" : ", on ", state.device,
                                ", rank 0 on ", state.host));
  }
  if (!state.loads.empty()) text += Row("loads", FormatLoads(state));
  text += Row("state", PhaseText(state));
  if (state.submitted_age_s) {
    text += Row("submitted", StrCat("job ", state.submitted, ", ", Ago(*state.submitted_age_s)));
  }
  if (!state.slurm.empty() && state.phase != RunPhase::kSubmitted) {
    text += Row("SLURM", state.slurm);
  }
  if (!state.reason.empty()) text += Row("reason", state.reason);
  if (!state.suspect_hosts.empty())
    text += Row("suspects",
                StrCat(state.job.starts_with("local-") ? "" : "--exclude=", state.suspect_hosts));
  if (state.step > 0) {
    text += Row("progress", StrCat(state.epoch > 0 ? StrCat("epoch ", state.epoch, ", ") : "",
                                   UpdateText(state), ", ", state.samples_total, " samples"));
  }
  if (state.samples_per_s && state.dur_p50_s) {
    text += Row("speed", StrCat(RateText(*state.samples_per_s), " samples/s, ",
                                Short(*state.dur_p50_s), " s an update (median)",
                                IsActive(state) && state.eta_s
                                    ? StrCat(", ", DurationText(*state.eta_s), " left")
                                    : ""));
  }
  if (state.loss) text += Row("loss", Short(*state.loss));
  if (state.eval_step > 0) text += Row("eval", LastEvalText(state));
  if (state.best) text += Row("best", BestText(state));
  if (state.save_step && state.save_age_s) {
    text += Row("saved", StrCat("update ", *state.save_step, ", ", Ago(*state.save_age_s)));
  }
  if (state.failed_saves > 0) text += Row("saves", StrCat(state.failed_saves, " failed in a row"));
  if (state.dropped_lines > 0)
    text += Row("logs", StrCat(state.dropped_lines, " lines of events and logs were lost"));
  return text;
}

std::string StateJson(const RunState& state) {
  JsonObject out;
  out("folder", state.folder);
  out("run", state.run);
  out("job", state.job);
  out("attempt_dir", state.attempt);
  out("host", state.host);
  out("phase", Name(state.phase));
  out("age_s", state.age_s);
  out.Text("submitted_jobs", state.submitted, kMaxPrintable);
  out("submitted_age_s", state.submitted_age_s);
  out.Text("slurm", state.slurm, kMaxPrintable);
  out.When(state.gone_in_slurm, [&] { out("gone_in_slurm", true); });
  out("world", state.world);
  out.Text("device", state.device, kMaxPrintable);
  out.Text("loads", state.loads, kMaxPrintable);
  out.NotZero("loads_step", state.loads_step);
  out("epoch", state.epoch);
  out("step", state.step);
  out("steps_total", state.steps_total);
  out("target", state.target);
  out("samples_total", state.samples_total);
  out("loss", state.loss);
  out.NotZero("eval_step", state.eval_step);
  for (const MetricValue& metric : state.eval) out("eval_" + metric.name, metric.value);
  if (state.best) {
    out.Text("best_metric", state.best->metric, kMaxPrintable);
    out("best_value", state.best->value);
    out("best_step", state.best->step);
  }
  out("wall_samples_per_s", state.samples_per_s);
  out("dur_p50_s", state.dur_p50_s);
  out("eta_s", state.eta_s);
  out("step_age_s", state.step_age_s);
  out("save_step", state.save_step);
  out("save_age_s", state.save_age_s);
  out("failed_saves", state.failed_saves);
  out("dropped_lines", state.dropped_lines);
  out("exit", state.exit);
  out.Text("reason", state.reason, kMaxPrintable);
  out.Text("suspect_hosts", state.suspect_hosts, kMaxPrintable);
  return out.Finish() + "\n";
}

namespace {

// A name of a folder may have any bytes.
std::string OneLine(std::string name) {
  std::ranges::replace(name, '\n', ' ');
  return Printable(name);
}

// Characters of UTF-8.
std::size_t Length(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string RunsTable(std::span<const RunState> runs) {
  std::vector<std::array<std::string, 8>> rows{
      {"folder", "state", "update", "loss", "best", "samples/s", "eta", "updated"}};
  for (const RunState& state : runs) {
    rows.push_back(
        {OneLine(state.folder), std::string(Name(state.phase)),
         state.steps_total > 0 ? StrCat(state.step, "/", state.steps_total) : StrCat(state.step),
         state.loss ? Short(*state.loss) : "-", BestText(state),
         state.samples_per_s ? RateText(*state.samples_per_s) : "-",
         IsActive(state) && state.eta_s ? DurationText(*state.eta_s) : "-", Ago(state.age_s)});
  }
  std::array<std::size_t, 8> widths{};
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Length(row[i]));
  }
  std::string text;
  for (auto& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      row[i].append(widths[i] + 2 - Length(row[i]), ' ');
    }
    for (const std::string& cell : row) text += cell;
    text += '\n';
  }
  return text;
}

}  // namespace gaccd
