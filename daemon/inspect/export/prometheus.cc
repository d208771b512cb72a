#include "daemon/inspect/export/prometheus.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <map>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/rundir/run_folder.h"

namespace gaccd {
namespace {

// Appends the samples of one metric of one run.
class Samples {
 public:
  Samples(std::string_view name, std::string run_labels, std::string* text)
      : name_(name), run_labels_(std::move(run_labels)), text_(text) {}

  template <typename T>
  void operator()(T value) {
    Add("", "", value);
  }
  template <typename T>
  void operator()(std::string_view label, std::string_view label_text, T value) {
    Add("", StrCat(",", label, "=", LabelText(label_text)), value);
  }
  template <typename T>
  void operator()(const std::optional<T>& value) {
    if (value) Add("", "", *value);
  }
  // A member of the newest event of a kind.
  void operator()(const std::optional<Event>& event, std::string_view key) {
    if (event) (*this)(event->Number(key));
  }
  // As above, but NaN if the event has no number: values that are not finite are null in events.
  void OrNan(const std::optional<Event>& event, std::string_view key) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    if (event) Add("", "", event->Number(key).value_or(kNan));
  }
  void AddRanks(const std::vector<Event>& ranks, std::string_view key) {
    for (const Event& event : ranks) {
      const auto value = event.Number(key);
      if (!value) continue;
      const std::string rank = std::to_string(event.Whole("rank").value_or(-1));
      Add("", StrCat(",rank=\"", rank, "\",node=", LabelText(event.Text("host"))), *value);
    }
  }
  void At(const std::optional<Event>& event) {
    if (event) Add("", "", SecondsSinceEpoch(event->at));
  }
  void operator()(const Histogram& histogram) {
    for (std::size_t i = 0; i < histogram.below.size(); ++i) {
      const std::string bound = NumberText(Histogram::kBounds[i]);
      Add("_bucket", StrCat(",le=\"", bound, "\""), histogram.below[i]);
    }
    Add("_bucket", ",le=\"+Inf\"", histogram.count);
    Add("_sum", "", histogram.sum);
    Add("_count", "", histogram.count);
  }
  // 1, with texts of events as labels.
  void Info(const std::optional<Event>& event,
            std::initializer_list<std::pair<const char*, const char*>> labels) {
    std::string text;
    for (const auto& [label, key] : labels) {
      text += StrCat(",", label, "=", LabelText(event ? event->Text(key) : ""));
    }
    Add("", text, 1);
  }

 private:
  template <typename T>
  void Add(std::string_view suffix, std::string_view labels, T value) {
    text_->append(name_).append(suffix).append("{").append(run_labels_).append(labels);
    text_->append("} ").append(NumberText(value)) += '\n';
  }

  std::string_view name_;
  std::string run_labels_;
  std::string* text_;
};

// Includes all `known` names, with 0 if they have no value.
template <typename T, std::size_t size>
void Each(const std::map<std::string, T>& values, const std::array<const char*, size>& known,
          std::string_view label, Samples& out) {
  std::map<std::string, T> all = values;
  for (const char* name : known) all.try_emplace(name);
  for (const auto& [name, value] : all) out(label, name, value);
}

void States(const RunMetrics& run, Samples& out) {
  for (const RunPhase phase :
       {RunPhase::kSubmitted, RunPhase::kStarting, RunPhase::kRunning, RunPhase::kStale,
        RunPhase::kStopped, RunPhase::kDone, RunPhase::kFailed}) {
    out("state", Name(phase), run.state.phase == phase ? 1 : 0);
  }
}

void Phases(const RunMetrics& run, Samples& out) {
  constexpr std::array kPhaseNames{"data", "forward_backward", "reduce", "optimizer",
                                   "wait", "checkpoint",       "eval"};
  Each(run.figures.phase_s, kPhaseNames, "phase", out);
}

void Errors(const RunMetrics& run, Samples& out) {
  constexpr std::array kClasses{"usage", "data", "unavailable", "internal",
                                "os",    "io",   "config",      "signal"};
  Each(run.figures.errors, kClasses, "class", out);
}

void LogLines(const RunMetrics& run, Samples& out) {
  constexpr std::array kLevels{"warning", "error"};
  Each(run.figures.log_lines, kLevels, "level", out);
}

void ExpectedEnd(const RunMetrics& run, Samples& out) {
  const auto& step = run.figures.step;
  // That of a previous attempt does not know when the newest one began.
  if (!step || run.state.exit || step->attempt != run.state.attempt) return;
  if (const auto left = step->Number("eta_s")) out(SecondsSinceEpoch(step->at) + *left);
}

// Events of later stages only have the effective batch: it is the requested one if nothing is
// rounded; otherwise that is not known.
void RequestedBatch(const RunMetrics& run, Samples& out) {
  const auto& plan = run.figures.plan;
  const std::string_view mode = plan ? plan->Text("mode") : "";
  if (run.figures.target && !mode.empty() && mode != "exact") return;
  out(run.figures.BatchNumber("target", "target_batch"));
}

struct Metric {
  const char* name;
  const char* type;
  const char* help;
  void (*add)(const RunMetrics& run, Samples& out);
};

constexpr Metric kMetrics[] = {
    {"gaccd_run_info", "gauge", "Model, device and software versions of the run.",
     [](const RunMetrics& run, Samples& out) {
       out.Info(run.figures.start, {{"name", "run"},
                                    {"model", "model"},
                                    {"device", "device"},
                                    {"precision", "precision"},
                                    {"gpu", "gpu"},
                                    {"cuda", "cuda"},
                                    {"nccl", "nccl"},
                                    {"partition", "partition"}});
     }},
    {"gaccd_build_info", "gauge", "Version of gaccd that trains the run.",
     [](const RunMetrics& run, Samples& out) {
       out.Info(run.figures.start, {{"version", "version"}, {"revision", "git"}});
     }},
    {"gaccd_state", "gauge", "1 for the state of the run, 0 for the others.", States},
    {"gaccd_exit_code", "gauge", "Exit code of the newest attempt, once it ended.",
     [](const RunMetrics& run, Samples& out) { out(run.state.exit); }},
    {"gaccd_ranks", "gauge", "Ranks of the run.",
     [](const RunMetrics& run, Samples& out) { out(run.state.world); }},
    {"gaccd_attempt", "gauge", "Number of the newest attempt.",
     [](const RunMetrics& run, Samples& out) {
       const auto name = ParseAttemptName(run.state.attempt);
       out(std::int64_t{name ? name->number : 0});
     }},
    {"gaccd_restarts_total", "counter", "Restarts of the run.",
     [](const RunMetrics& run, Samples& out) {
       out(std::max<std::int64_t>(0, run.figures.attempts - 1));
     }},
    {"gaccd_step", "gauge", "Updates in the current model, skipped ones included.",
     [](const RunMetrics& run, Samples& out) { out(run.state.step); }},
    {"gaccd_steps_target", "gauge", "Updates of the whole training.",
     [](const RunMetrics& run, Samples& out) {
       // Unknown before the first update; panels divide by it.
       if (run.state.steps_total > 0) out(run.state.steps_total);
     }},
    {"gaccd_steps_total", "counter", "Updates executed, including repeated ones.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.updates); }},
    {"gaccd_lost_steps_total", "counter", "Updates that a later attempt repeated.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.lost_updates); }},
    {"gaccd_skipped_steps_total", "counter", "Updates without an optimizer step.",
     [](const RunMetrics& run, Samples& out) {
       out("reason", "nonfinite", run.figures.skipped - run.figures.unlabelled);
       out("reason", "unlabelled", run.figures.unlabelled);
     }},
    {"gaccd_samples_total", "counter", "Samples of all executed updates, skipped ones included.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.samples); }},
    {"gaccd_tokens_total", "counter", "Tokens that counted in the loss of these updates.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.tokens); }},
    {"gaccd_model_flops_total", "counter",
     "Floating-point operations of matrix products for these samples.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.flops); }},
    {"gaccd_peak_flops", "gauge", "Peak floating-point operations per second of all GPUs.",
     [](const RunMetrics& run, Samples& out) {
       if (const auto& start = run.figures.start; start && start->Number("peak_flops")) {
         out(*start->Number("peak_flops") * start->Number("world").value_or(1));
       }
     }},
    {"gaccd_mfu_ratio", "gauge", "Model FLOPs utilization of the newest update, where known.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.step, "mfu_ratio"); }},
    {"gaccd_batch_target_samples", "gauge", "Requested samples of an update.", RequestedBatch},
    {"gaccd_batch_effective_samples", "gauge", "Planned samples of an update.",
     [](const RunMetrics& run, Samples& out) {
       out(run.figures.BatchNumber("target", "effective_batch"));
     }},
    {"gaccd_accumulation_steps", "gauge", "Micro-steps of an update.",
     [](const RunMetrics& run, Samples& out) {
       out(run.figures.BatchNumber("accum_steps", "accum_steps"));
     }},
    {"gaccd_plan_balance_ratio", "gauge", "Mean load of a rank over the largest load.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.plan, "balance_ratio"); }},
    {"gaccd_step_duration_seconds", "histogram", "Duration of an update.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.update_s); }},
    {"gaccd_phase_seconds_total", "counter", "Time of rank 0 in each phase.", Phases},
    {"gaccd_loss", "gauge", "Mean loss of the newest update.",
     [](const RunMetrics& run, Samples& out) { out.OrNan(run.figures.step, "loss"); }},
    {"gaccd_gradient_norm", "gauge", "Gradient norm of the newest update, before clipping.",
     [](const RunMetrics& run, Samples& out) { out.OrNan(run.figures.step, "grad_norm"); }},
    {"gaccd_learning_rate", "gauge", "Learning rate of the newest update.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.step, "lr"); }},
    {"gaccd_eval", "gauge", "Newest value of each metric of the evaluation.",
     [](const RunMetrics& run, Samples& out) {
       for (const auto& [metric, value] : run.figures.evals) out("metric", metric, value);
     }},
    {"gaccd_nonfinite_total", "counter",
     "Updates that were done with a loss or gradient that was not finite, except for overflows of "
     "the fp16 loss scale.",
     [](const RunMetrics& run, Samples& out) {
       out("what", "loss", run.figures.nonfinite_losses);
       out("what", "gradient", run.figures.nonfinite_gradients);
     }},
    {"gaccd_straggler_rank", "gauge", "Slowest rank of the newest update, if there is a straggler.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.step, "straggler_rank"); }},
    {"gaccd_straggler_ratio", "gauge",
     "Its busy time over what the plan expects from the median rank.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.step, "straggler_ratio"); }},
    {"gaccd_straggler_events_total", "counter",
     "Updates in which a rank of the node was the slowest.",
     [](const RunMetrics& run, Samples& out) {
       for (const auto& [host, updates] : run.figures.stragglers) out("node", host, updates);
     }},
    {"gaccd_rank_step_seconds", "gauge", "Mean duration of an update on each rank, last minute.",
     [](const RunMetrics& run, Samples& out) { out.AddRanks(run.ranks, "dur_s"); }},
    {"gaccd_rank_wait_seconds", "gauge",
     "Mean time in which a rank waited for the slowest one per update.",
     [](const RunMetrics& run, Samples& out) { out.AddRanks(run.ranks, "wait_s"); }},
    {"gaccd_rank_memory_bytes", "gauge", "Resident memory of each rank, without mapped files.",
     [](const RunMetrics& run, Samples& out) { out.AddRanks(run.ranks, "memory_bytes"); }},
    {"gaccd_start_timestamp_seconds", "gauge", "Start of the run.",
     [](const RunMetrics& run, Samples& out) {
       if (run.figures.begin) out(SecondsSinceEpoch(*run.figures.begin));
     }},
    {"gaccd_last_step_timestamp_seconds", "gauge", "End of the newest update.",
     [](const RunMetrics& run, Samples& out) { out.At(run.figures.step); }},
    {"gaccd_status_timestamp_seconds", "gauge", "Time of the newest STATUS.json.",
     [](const RunMetrics& run, Samples& out) { out(run.written_s); }},
    {"gaccd_job_end_timestamp_seconds", "gauge", "End of the job's time limit.",
     [](const RunMetrics& run, Samples& out) { out(run.job_end_s); }},
    {"gaccd_eta_timestamp_seconds", "gauge", "Expected end of the training.", ExpectedEnd},
    {"gaccd_checkpoint_last_success_timestamp_seconds", "gauge", "Time of the newest commit.",
     [](const RunMetrics& run, Samples& out) { out.At(run.figures.save); }},
    {"gaccd_checkpoint_last_step", "gauge", "Updates in the newest checkpoint.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.save, "step"); }},
    {"gaccd_checkpoint_bytes", "gauge", "Size of the newest checkpoint, of all ranks.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.save, "bytes"); }},
    {"gaccd_checkpoint_save_seconds", "histogram", "Duration of a save until its commit.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.save_s); }},
    {"gaccd_checkpoint_failures_total", "counter", "Saves that failed.",
     [](const RunMetrics& run, Samples& out) { out(run.figures.failed_saves); }},
    // Of STATUS.json: a full disk takes no events.
    {"gaccd_checkpoint_failures_in_row", "gauge",
     "Saves that failed since the last one that did not.",
     [](const RunMetrics& run, Samples& out) { out(run.state.failed_saves); }},
    {"gaccd_lost_lines", "gauge",
     "Lines of events and logs that the newest attempt could not write.",
     [](const RunMetrics& run, Samples& out) { out(run.state.dropped_lines); }},
    {"gaccd_errors_total", "counter", "Failed ranks by reason.", Errors},
    {"gaccd_log_lines_total", "counter", "Warnings and errors in the log of rank 0.", LogLines},
    {"gaccd_goodput_ratio", "gauge", "Share of the run's time in updates that were not lost.",
     [](const RunMetrics& run, Samples& out) {
       if (run.figures.elapsed_s > 0) out(run.figures.good_s / run.figures.elapsed_s);
     }},
    {"gaccd_badput_seconds_total", "counter", "Time of the run that is not goodput, by cause.",
     [](const RunMetrics& run, Samples& out) {
       for (std::size_t i = 0; i < kBadputNames.size(); ++i) {
         out("reason", kBadputNames[i], run.figures.badput_s[i]);
       }
     }},
};

}  // namespace

std::string LabelText(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : ValidUtf8(text)) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return quoted + '"';
}

std::string PrometheusText(std::span<const RunMetrics> runs) {
  std::string text;
  for (const Metric& metric : kMetrics) {
    std::string samples;
    for (const RunMetrics& run : runs) {
      Samples out(metric.name,
                  StrCat("run=", LabelText(run.run), ",slurm_job_id=", LabelText(run.state.job)),
                  &samples);
      metric.add(run, out);
    }
    if (samples.empty()) continue;
    text += StrCat("# HELP ", metric.name, " ", metric.help, "\n# TYPE ", metric.name, " ",
                   metric.type, "\n", samples);
  }
  return text;
}

}  // namespace gaccd
