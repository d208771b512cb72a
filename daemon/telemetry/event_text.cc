#include "daemon/telemetry/event_text.h"

#include <sys/time.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <limits>
#include <sstream>
#include <type_traits>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/config/plan_proto.h"
#include "proto/plan.pb.h"

namespace gaccd {
namespace {

// The limits of the texts of one line, escaped, add up to less than kMaxLineBytes.
constexpr std::size_t kWord = 24;     // versions
constexpr std::size_t kShort = 64;    // names
constexpr std::size_t kMiddle = 512;  // lists
constexpr std::size_t kLong = 1200;   // messages

std::string RanksText(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += StrCat(text.empty() ? "" : ",", rank);
  return text;
}

// As many as are whole: the text may be cut.
std::vector<int> ParseRanks(const std::string& text) {
  std::vector<int> ranks;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    int rank = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), rank);
    if (error != std::errc() || end != word.data() + word.size() || rank < 0) break;
    ranks.push_back(rank);
  }
  return ranks;
}

JsonObject Envelope(const RunIdentity& who, const LineStamp& stamp, const char* event) {
  JsonObject out;
  out("v", 1);
  out("ts", stamp.ts);
  out.Text("run", who.run, kShort);
  out.Text("job", who.job, kShort);
  out("attempt", who.attempt);
  out("rank", who.rank);
  out.Text("host", who.host, kShort);
  out("ev", event);
  out("lvl", stamp.level);
  out("seq", stamp.seq);
  return out;
}

// One description for both directions: JsonObject writes it, FailureReader reads it.
template <typename Io, typename F>
void Fields(Io& io, F& failure) {
  std::string lost = RanksText(failure.lost_ranks);
  io.NotZero("exit", failure.exit);
  io.NotZero("signal", failure.signal);
  io("step", failure.step);
  io.Text("phase", failure.phase, kShort);
  io("micro_step", failure.micro_step);
  io.Text("collective", failure.collective, kShort);
  io("sequence", failure.sequence);
  io.Text("msg", failure.message, kLong);
  io.Text("lost_ranks", lost, kMiddle);
  if constexpr (!std::is_const_v<F>) failure.lost_ranks = ParseRanks(lost);
}

struct FailureReader {
  const Json& object;
  std::string problem = {};

  template <typename T>
  void operator()(const char* key, T& value) {
    if (!Has(key)) return;
    const std::optional<T> found = object.integer<T>(key);
    if (!found) problem = StrCat(key, ": expected a whole number");
    if (found) value = *found;
  }
  template <typename T>
  void operator()(const char* key, std::optional<T>& value) {
    if (Has(key)) (*this)(key, value.emplace());
  }
  void NotZero(const char* key, int& value) { (*this)(key, value); }
  void Text(const char* key, std::string& value, std::size_t) {
    if (!Has(key)) return;
    const std::string* found = object.text(key);
    if (found == nullptr) problem = StrCat(key, ": expected text");
    if (found != nullptr) value = *found;
  }
  [[nodiscard]] bool Has(std::string_view key) const {
    const Json* const member = object.Find(key);
    return member != nullptr && !member->is_null();
  }
};

}  // namespace

std::string Timestamp() {
  timeval now{};
  ::gettimeofday(&now, nullptr);
  std::tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  char text[64];
  std::snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ", utc.tm_year + 1900,
                utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                static_cast<long>(now.tv_usec));
  return text;
}

std::string RunStartJson(const RunIdentity& who, const LineStamp& stamp, const RunStart& event) {
  JsonObject out = Envelope(who, stamp, "run_start");
  out.Text("version", event.version, kShort);
  out.Text("git", event.git, kShort);
  out.Text("mpi", event.mpi, kShort);
  out.Text("comm", event.comm, kShort);
  out("nodes", event.nodes);
  out("world", event.world);
  out.Text("partition", event.partition, kShort);
  out.Text("account", event.account, kShort);
  out.Text("nodelist", event.nodelist, kMiddle);
  out.Text("config_sha", event.config_sha, 2 * kShort);
  out.Text("model", event.model, kShort);
  out("parameters", event.parameters);
  out("flops_per_sample", event.flops_per_sample);
  if (event.peak_flops > 0) out("peak_flops", event.peak_flops);
  out.NotZero("memory_planned_bytes", event.memory_planned_bytes);
  out("train_samples", event.train_samples);
  out("eval_samples", event.eval_samples);
  out.Text("device", event.device, kWord);
  out.Text("device_reason", event.device_reason, kMiddle / 2);
  out.Text("precision", event.precision, kWord);
  if (event.ema_decay) out("ema_decay", *event.ema_decay);
  out.Text("gpu", event.gpu, kShort);
  out.NotZero("gpu_memory_planned_bytes", event.gpu_memory_planned_bytes);
  out.Text("cuda", event.cuda, kWord);
  out.Text("driver", event.driver, kWord);
  out.Text("cublaslt", event.cublaslt, kWord);
  out.Text("cudnn", event.cudnn, kWord);
  out.Text("nccl", event.nccl, kWord);
  return out.Take();
}

std::string PlanEventJson(const RunIdentity& who, const LineStamp& stamp, const Plan& plan) {
  JsonObject out = Envelope(who, stamp, "plan");
  proto::Plan message;
  FillPlanProto(plan, message);
  AppendFields(message, out);
  return out.Take();
}

std::string StepJson(const RunIdentity& who, const LineStamp& stamp, const StepRecord& event,
                     const StepRates& rates) {
  JsonObject out = Envelope(who, stamp, "step");
  out("epoch", event.epoch);
  out("step", event.step);
  out("steps_total", event.steps_total);
  out("samples", event.samples);
  out("target", event.target);
  out("samples_total", event.samples_total);
  out("loss", event.loss);
  out("loss_finite", std::isfinite(event.loss));
  out("divisor", event.divisor);
  out.Text("unit", event.unit, kWord);
  out("grad_norm", event.grad_norm);
  out("grad_finite", std::isfinite(event.grad_norm));
  out("lr", event.lr);
  out("skipped", event.skipped);
  if (event.loss_scale) {
    out("loss_scale", event.loss_scale->scale);
    out("growth_tracker", event.loss_scale->growth_tracker);
  }
  out("dur_s", event.dur_s);
  out("data_s", event.data_s);
  out("fwd_bwd_s", event.fwd_bwd_s);
  out("reduce_s", event.reduce_s);
  out("opt_s", event.opt_s);
  out("wait_s", event.wait_s);
  out("samples_per_s", rates.samples_per_s);
  out("dur_p50_s", rates.dur_p50_s);
  out("dur_p99_s", rates.dur_p99_s);
  out("eta_s", rates.eta_s);
  if (rates.mfu_ratio) out("mfu_ratio", *rates.mfu_ratio);
  if (event.straggler) {
    out("straggler_rank", event.straggler->rank);
    out.Text("straggler_host", event.straggler->host, kShort);
    out.Text("straggler_phase", event.straggler->phase, kWord);
    out("straggler_ratio", event.straggler->ratio);
  }
  out.Text("digest", event.digest, kWord);
  return out.Take();
}

std::string RankStepJson(const RunIdentity& who, const LineStamp& stamp,
                         const RankStepRecord& event) {
  JsonObject out = Envelope(who, stamp, "rank_step");
  out("step", event.step);
  out("updates", event.updates);
  out("dur_s", event.dur_s);
  out("dur_max_s", event.dur_max_s);
  out("data_s", event.data_s);
  out("fwd_bwd_s", event.fwd_bwd_s);
  out("reduce_s", event.reduce_s);
  out("opt_s", event.opt_s);
  out("wait_s", event.wait_s);
  out.NotZero("memory_bytes", event.memory_bytes);
  return out.Take();
}

std::string EvalJson(const RunIdentity& who, const LineStamp& stamp, const EvalRecord& event,
                     std::string_view metric, double value) {
  JsonObject out = Envelope(who, stamp, "eval");
  out("epoch", event.epoch);
  out("step", event.step);
  out("metric", metric);
  out("value", value);
  out("value_finite", std::isfinite(value));
  out("samples", event.samples);
  out("divisor", event.divisor);
  out.Text("unit", event.unit, kWord);
  out("dur_s", event.dur_s);
  if (event.best && event.best->metric == metric) {
    out("best_step", event.best->step);
    out("best_value", event.best->value);
  }
  return out.Take();
}

std::string SaveJson(const RunIdentity& who, const LineStamp& stamp, const SaveRecord& event) {
  JsonObject out = Envelope(who, stamp, "save");
  out("step", event.step);
  out("micro_step", event.micro_step);
  out.Text("generation", event.generation, kShort);
  out("writer_epoch", event.writer_epoch);
  out("ok", event.reason.empty());
  out.Text("reason", event.reason, kLong);
  out.NotZero("failed_in_row", event.failed_in_row);
  out("bytes", event.bytes);
  out("stall_s", event.stall_s);
  out("dur_s", event.dur_s);
  return out.Take();
}

std::string ResumeJson(const RunIdentity& who, const LineStamp& stamp, const ResumeRecord& event) {
  JsonObject out = Envelope(who, stamp, "resume");
  out("step", event.step);
  out("micro_step", event.micro_step);
  out.Text("generation", event.generation, kShort);
  out.Text("folder", event.folder, kLong);
  out("writer_epoch", event.writer_epoch);
  out("samples_total", event.samples_total);
  out("skipped_checkpoints", event.skipped_checkpoints);
  out("bytes", event.bytes);
  out("dur_s", event.dur_s);
  return out.Take();
}

std::string WeightsJson(const RunIdentity& who, const LineStamp& stamp,
                        const WeightsRecord& event) {
  JsonObject out = Envelope(who, stamp, "weights");
  out.Text("file", event.file, kMiddle);
  out("parameters", event.parameters);
  out("loaded", event.loaded);
  out.Text("fresh", event.fresh, kMiddle);
  out.Text("unused", event.unused, kMiddle);
  return out.Take();
}

std::string StartingJson(const RunIdentity& who, const LineStamp& stamp, std::string_view stage) {
  JsonObject out = Envelope(who, stamp, "starting");
  out.Text("stage", stage, kShort);
  return out.Take();
}

std::string HeartbeatJson(const RunIdentity& who, const LineStamp& stamp,
                          const HeartbeatRecord& event) {
  JsonObject out = Envelope(who, stamp, "heartbeat");
  out.Text("phase", event.phase, kShort);
  out("step", event.step);
  out("micro_step", event.micro_step);
  out("quiet_s", event.quiet_s);
  return out.Take();
}

std::string MemoryJson(const RunIdentity& who, const LineStamp& stamp, const MemoryRecord& event) {
  JsonObject out = Envelope(who, stamp, "memory");
  out("measured_bytes", event.measured_bytes);
  out("planned_bytes", event.planned_bytes);
  return out.Take();
}

std::string LogJson(const RunIdentity& who, const LineStamp& stamp, const LogLine& event,
                    std::int64_t step) {
  JsonObject out = Envelope(who, stamp, "log");
  out("step", step);
  out.Text("file", event.file, kShort);
  out("line", event.line);
  out.Text("msg", event.message, kLong);
  return out.Take();
}

std::string DroppedJson(const RunIdentity& who, const LineStamp& stamp, std::int64_t lines,
                        std::int64_t total, std::string_view reason) {
  JsonObject out = Envelope(who, stamp, "dropped");
  out("lines", lines);
  out("lines_total", total);
  out.Text("reason", reason, kLong);
  return out.Take();
}

std::string FailureJson(const RunIdentity& who, const LineStamp& stamp, const Failure& event) {
  JsonObject out = Envelope(who, stamp, "failure");
  Fields(out, event);
  return out.Take();
}

Result<Failure> ParseFailureJson(const std::string& line) {
  const auto refuse = [](std::string_view problem) {
    return Status(ErrorKind::kData, StrCat("no failure record: ", problem));
  };
  const std::optional<Json> object = Json::ParseObject(line);
  if (!object) return refuse("expected one object of JSON");
  Failure failure;
  FailureReader reader{*object};
  Fields(reader, failure);
  if (!reader.problem.empty()) return refuse(reader.problem);
  return failure;
}

std::string VerdictJson(const RunIdentity& who, const LineStamp& stamp, const Verdict& event) {
  JsonObject out = Envelope(who, stamp, "verdict");
  out("verdict", event.verdict);
  out("exit", event.exit);
  out.Text("reason", event.reason, kLong);
  out("last_step", event.last_step);
  out("samples_total", event.samples_total);
  out("dur_s", event.dur_s);
  out.Text("suspect_hosts", event.suspect_hosts, kMiddle);
  if (!event.first) return out.Take();
  out("first_rank", event.first->rank);
  out.Text("first_host", event.first->host, kShort);
  if (event.first_failure) {
    out.NotZero("first_exit", event.first_failure->exit);
    out.NotZero("first_signal", event.first_failure->signal);
    out.Text("first_msg", event.first_failure->message, kMiddle / 2);
  }
  out.Text("lost_ranks", RanksText(event.lost_ranks), kMiddle / 2);
  if (event.killed) out("first_killed", true);
  out.NotZero("first_memory_bytes", event.first->memory_bytes);
  out.NotZero("memory_planned_bytes", event.memory_planned_bytes);
  return out.Take();
}

std::string StatusJson(const RunStatus& status) {
  const StepRecord& last = status.last;
  JsonObject out;
  out("v", 1);
  out("ts", Timestamp());
  out.Text("run", status.identity.run, kShort);
  out.Text("job", status.identity.job, kShort);
  out("attempt", status.identity.attempt);
  out.Text("attempt_dir", status.attempt_dir, kMiddle);
  out.Text("host", status.identity.host, kShort);
  out.NotZero("pid", status.pid);
  out("state", status.state);
  out("world", status.world);
  if (last.step > 0) {
    out("epoch", last.epoch);
    out("step", last.step);
    out("steps_total", last.steps_total);
    out("target", last.target);
    out("samples_total", last.samples_total);
    out("loss", last.loss);
    out("loss_finite", std::isfinite(last.loss));
    out("samples_per_s", status.rates.samples_per_s);
    out("dur_p50_s", status.rates.dur_p50_s);
    out("eta_s", status.rates.eta_s);
    out("wall_samples_per_s", status.rates.wall_samples_per_s);
    out("last_step_ts", status.last_step_ts);
  } else if (status.from_step > 0) {
    out("step", status.from_step);
    out("samples_total", status.from_samples);
  }
  if (const EvalRecord& eval = status.last_eval; eval.step > 0) {
    out("eval_step", eval.step);
    out("eval_loss", eval.loss);
    for (const MetricValue& metric : eval.metrics) out("eval_" + metric.name, metric.value);
  }
  if (status.best) {
    out("best_metric", status.best->metric);
    out("best_value", status.best->value);
    out("best_step", status.best->step);
  }
  out("write_errors", status.write_errors);
  const Verdict& verdict = status.verdict;
  if (!verdict.verdict.empty()) {
    out("exit", verdict.exit);
    out.Text("reason", verdict.reason, kLong);
    out.Text("suspect_hosts", verdict.suspect_hosts, kMiddle);
  }
  out.Text("device", status.device, kShort);
  out.Text("gpu", status.gpu, kShort);
  out("dropped_lines", status.dropped_lines);
  if (!status.save_ts.empty()) {
    out("save_step", status.save_step);
    out("save_ts", status.save_ts);
  }
  out.NotZero("failed_saves", status.failed_saves);
  return out.Take();
}

}  // namespace gaccd
