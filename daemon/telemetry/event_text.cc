#include "daemon/telemetry/event_text.h"

#include <google/protobuf/util/json_util.h>
#include <sys/time.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <sstream>

#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/config/plan_proto.h"
#include "proto/event.pb.h"
#include "proto/plan.pb.h"

namespace gaccd {
namespace {

constexpr std::size_t kWord = 24;     // versions
constexpr std::size_t kShort = 64;    // names
constexpr std::size_t kMiddle = 512;  // lists
constexpr std::size_t kLong = 1200;   // messages

// At most `limit` bytes, and at most 2 * limit once escaped (a control character takes 6): the
// limits of one line then add up to less than kMaxLineBytes.
std::string Cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit && JsonString(text).size() <= 2 * limit) return std::string(text);
  const std::size_t keep = text.size() > limit ? limit - 3 : text.size();
  const bool dense = JsonString(text.substr(0, keep)).size() + 3 > 2 * limit;
  return std::string(text.substr(0, dense ? limit / 6 : keep)) + "...";
}

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

proto::Envelope Envelope(const RunIdentity& who, const LineStamp& stamp, const char* event) {
  proto::Envelope envelope;
  envelope.set_v(1);
  envelope.set_ts(stamp.ts);
  envelope.set_run(Cut(who.run, kShort));
  envelope.set_job(Cut(who.job, kShort));
  envelope.set_attempt(who.attempt);
  envelope.set_rank(who.rank);
  envelope.set_host(Cut(who.host, kShort));
  envelope.set_ev(event);
  envelope.set_lvl(std::string(stamp.level));
  envelope.set_seq(stamp.seq);
  return envelope;
}

proto::Verdict ToProto(const Verdict& event) {
  proto::Verdict message;
  message.set_verdict(event.verdict);
  message.set_exit(event.exit);
  if (!event.reason.empty()) message.set_reason(Cut(event.reason, kLong));
  message.set_last_step(event.last_step);
  message.set_samples_total(event.samples_total);
  message.set_dur_s(event.dur_s);
  if (!event.suspect_hosts.empty()) message.set_suspect_hosts(Cut(event.suspect_hosts, kMiddle));
  if (!event.first) return message;
  message.set_lost_ranks(Cut(RanksText(event.lost_ranks), kMiddle / 2));
  if (event.killed) message.set_first_killed(true);
  if (event.first->memory_bytes > 0) message.set_first_memory_bytes(event.first->memory_bytes);
  if (event.memory_planned_bytes > 0) message.set_memory_planned_bytes(event.memory_planned_bytes);
  message.set_first_rank(event.first->rank);
  message.set_first_host(Cut(event.first->host, kShort));
  if (!event.first_failure) return message;
  if (event.first_failure->exit != 0) message.set_first_exit(event.first_failure->exit);
  if (event.first_failure->signal != 0) message.set_first_signal(event.first_failure->signal);
  message.set_first_msg(Cut(event.first_failure->message, kMiddle / 2));
  return message;
}

proto::Failure ToProto(const Failure& event) {
  proto::Failure message;
  if (event.exit != 0) message.set_exit(event.exit);
  if (event.signal != 0) message.set_signal(event.signal);
  message.set_step(event.step);
  if (!event.phase.empty()) message.set_phase(Cut(event.phase, kShort));
  message.set_micro_step(event.micro_step);
  if (!event.collective.empty()) message.set_collective(Cut(event.collective, kShort));
  if (event.sequence) message.set_sequence(*event.sequence);
  message.set_msg(Cut(event.message, kLong));
  if (!event.lost_ranks.empty()) message.set_lost_ranks(Cut(RanksText(event.lost_ranks), kMiddle));
  return message;
}

void FillLastStep(const StepRecord& last, const StepRates& rates, proto::RunStatus& message) {
  message.set_epoch(last.epoch);
  message.set_step(last.step);
  message.set_steps_total(last.steps_total);
  message.set_target(last.target);
  message.set_samples_total(last.samples_total);
  message.set_loss(last.loss);
  message.set_loss_finite(std::isfinite(last.loss));
  message.set_samples_per_s(rates.samples_per_s);
  message.set_wall_samples_per_s(rates.wall_samples_per_s);
  message.set_dur_p50_s(rates.dur_p50_s);
  message.set_eta_s(rates.eta_s);
}

void FillDevice(const RunStart& event, proto::RunStart& message) {
  if (!event.device.empty()) message.set_device(Cut(event.device, kWord));
  if (!event.device_reason.empty()) {
    message.set_device_reason(Cut(event.device_reason, kMiddle / 2));
  }
  if (!event.precision.empty()) message.set_precision(Cut(event.precision, kWord));
  if (event.gpu.empty()) return;
  message.set_gpu(Cut(event.gpu, kShort));
  message.set_gpu_memory_planned_bytes(event.gpu_memory_planned_bytes);
  message.set_cuda(Cut(event.cuda, kWord));
  message.set_driver(Cut(event.driver, kWord));
  message.set_cublaslt(Cut(event.cublaslt, kWord));
  message.set_nccl(Cut(event.nccl, kWord));
}

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
  const proto::Envelope envelope = Envelope(who, stamp, "run_start");
  proto::RunStart message;
  if (!event.version.empty()) message.set_version(Cut(event.version, kShort));
  if (!event.git.empty()) message.set_git(Cut(event.git, kShort));
  if (!event.mpi.empty()) message.set_mpi(Cut(event.mpi, kShort));
  if (!event.comm.empty()) message.set_comm(Cut(event.comm, kShort));
  message.set_nodes(event.nodes);
  message.set_world(event.world);
  if (!event.partition.empty()) message.set_partition(Cut(event.partition, kShort));
  if (!event.account.empty()) message.set_account(Cut(event.account, kShort));
  if (!event.nodelist.empty()) message.set_nodelist(Cut(event.nodelist, kMiddle));
  if (!event.config_sha.empty()) message.set_config_sha(Cut(event.config_sha, 2 * kShort));
  if (!event.model.empty()) message.set_model(Cut(event.model, kShort));
  message.set_parameters(event.parameters);
  if (event.memory_planned_bytes > 0) {
    message.set_memory_planned_bytes(event.memory_planned_bytes);
  }
  message.set_train_samples(event.train_samples);
  message.set_eval_samples(event.eval_samples);
  FillDevice(event, message);
  return FlatJson({&envelope, &message});
}

std::string PlanEventJson(const RunIdentity& who, const LineStamp& stamp, const Plan& plan) {
  const proto::Envelope envelope = Envelope(who, stamp, "plan");
  proto::Plan message;
  FillPlanProto(plan, message);
  return FlatJson({&envelope, &message});
}

std::string StepJson(const RunIdentity& who, const LineStamp& stamp, const StepRecord& event,
                     const StepRates& rates) {
  const proto::Envelope envelope = Envelope(who, stamp, "step");
  proto::Step message;
  message.set_epoch(event.epoch);
  message.set_step(event.step);
  message.set_steps_total(event.steps_total);
  message.set_samples(event.samples);
  message.set_target(event.target);
  message.set_samples_total(event.samples_total);
  message.set_loss(event.loss);
  message.set_loss_finite(std::isfinite(event.loss));
  message.set_grad_norm(event.grad_norm);
  message.set_grad_finite(std::isfinite(event.grad_norm));
  message.set_lr(event.lr);
  message.set_skipped(event.skipped);
  message.set_dur_s(event.dur_s);
  message.set_data_s(event.data_s);
  message.set_fwd_bwd_s(event.fwd_bwd_s);
  message.set_reduce_s(event.reduce_s);
  message.set_opt_s(event.opt_s);
  if (event.wait_s) message.set_wait_s(*event.wait_s);
  if (event.straggler) {
    message.set_straggler_rank(event.straggler->rank);
    message.set_straggler_host(Cut(event.straggler->host, kShort));
    message.set_straggler_phase(Cut(event.straggler->phase, kWord));
    message.set_straggler_ratio(event.straggler->ratio);
  }
  if (!event.digest.empty()) message.set_digest(Cut(event.digest, kWord));
  message.set_samples_per_s(rates.samples_per_s);
  message.set_dur_p50_s(rates.dur_p50_s);
  message.set_dur_p99_s(rates.dur_p99_s);
  message.set_eta_s(rates.eta_s);
  return FlatJson({&envelope, &message});
}

std::string EvalJson(const RunIdentity& who, const LineStamp& stamp, const EvalRecord& event,
                     std::string_view metric, double value) {
  const proto::Envelope envelope = Envelope(who, stamp, "eval");
  proto::Eval message;
  message.set_epoch(event.epoch);
  message.set_step(event.step);
  message.set_metric(std::string(metric));
  message.set_value(value);
  message.set_value_finite(std::isfinite(value));
  message.set_samples(event.samples);
  message.set_dur_s(event.dur_s);
  return FlatJson({&envelope, &message});
}

std::string SaveJson(const RunIdentity& who, const LineStamp& stamp, const SaveRecord& event) {
  const proto::Envelope envelope = Envelope(who, stamp, "save");
  proto::Save message;
  message.set_step(event.step);
  message.set_micro_step(event.micro_step);
  message.set_generation(Cut(event.generation, kShort));
  message.set_writer_epoch(event.writer_epoch);
  message.set_ok(event.reason.empty());
  if (!event.reason.empty()) message.set_reason(Cut(event.reason, kLong));
  if (event.failed_in_row > 0) message.set_failed_in_row(event.failed_in_row);
  message.set_bytes(event.bytes);
  message.set_stall_s(event.stall_s);
  message.set_dur_s(event.dur_s);
  return FlatJson({&envelope, &message});
}

std::string ResumeJson(const RunIdentity& who, const LineStamp& stamp, const ResumeRecord& event) {
  const proto::Envelope envelope = Envelope(who, stamp, "resume");
  proto::Resume message;
  message.set_step(event.step);
  message.set_micro_step(event.micro_step);
  message.set_generation(Cut(event.generation, kShort));
  message.set_folder(Cut(event.folder, kLong));
  message.set_writer_epoch(event.writer_epoch);
  message.set_samples_total(event.samples_total);
  message.set_passed_over(event.passed_over);
  message.set_bytes(event.bytes);
  message.set_dur_s(event.dur_s);
  return FlatJson({&envelope, &message});
}

std::string LogJson(const RunIdentity& who, const LineStamp& stamp, const LogLine& event,
                    std::int64_t step) {
  const proto::Envelope envelope = Envelope(who, stamp, "log");
  proto::Log message;
  message.set_step(step);
  message.set_file(Cut(event.file, kShort));
  message.set_line(event.line);
  message.set_msg(Cut(event.message, kLong));
  return FlatJson({&envelope, &message});
}

std::string DroppedJson(const RunIdentity& who, const LineStamp& stamp, std::int64_t lines,
                        std::int64_t total, std::string_view reason) {
  const proto::Envelope envelope = Envelope(who, stamp, "dropped");
  proto::Dropped message;
  message.set_lines(lines);
  message.set_lines_total(total);
  message.set_reason(Cut(reason, kLong));
  return FlatJson({&envelope, &message});
}

std::string FailureJson(const RunIdentity& who, const LineStamp& stamp, const Failure& event) {
  const proto::Envelope envelope = Envelope(who, stamp, "failure");
  const proto::Failure message = ToProto(event);
  return FlatJson({&envelope, &message});
}

Result<Failure> ParseFailureJson(const std::string& line) {
  proto::Failure message;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // those of the envelope
  const auto parsed = google::protobuf::util::JsonStringToMessage(line, &message, options);
  if (!parsed.ok()) return Status(ErrorKind::kData, "no failure record: " + parsed.ToString());
  Failure failure{.exit = message.exit(),
                  .signal = message.signal(),
                  .step = message.step(),
                  .phase = message.phase(),
                  .micro_step = message.micro_step(),
                  .collective = message.collective(),
                  .sequence = {},
                  .message = message.msg()};
  if (message.has_sequence()) failure.sequence = message.sequence();
  failure.lost_ranks = ParseRanks(message.lost_ranks());
  return failure;
}

std::string VerdictJson(const RunIdentity& who, const LineStamp& stamp, const Verdict& event) {
  const proto::Envelope envelope = Envelope(who, stamp, "verdict");
  const proto::Verdict message = ToProto(event);
  return FlatJson({&envelope, &message});
}

std::string StatusJson(const RunStatus& status) {
  proto::RunStatus message;
  message.set_v(1);
  message.set_ts(Timestamp());
  message.set_run(Cut(status.identity.run, kShort));
  message.set_job(Cut(status.identity.job, kShort));
  message.set_attempt(status.identity.attempt);
  message.set_attempt_dir(Cut(status.attempt_dir, kMiddle));
  message.set_host(Cut(status.identity.host, kShort));
  message.set_pid(status.pid);
  message.set_state(status.state);
  message.set_world(status.world);
  if (!status.device.empty()) message.set_device(Cut(status.device, kShort));
  if (!status.gpu.empty()) message.set_gpu(Cut(status.gpu, kShort));
  if (status.last.step > 0) {
    FillLastStep(status.last, status.rates, message);
    message.set_last_step_ts(status.last_step_ts);
  } else if (status.from_step > 0) {
    message.set_step(status.from_step);
    message.set_samples_total(status.from_samples);
  }
  if (!status.save_ts.empty()) {
    message.set_save_step(status.save_step);
    message.set_save_ts(status.save_ts);
  }
  if (status.failed_saves > 0) message.set_failed_saves(status.failed_saves);
  message.set_write_errors(status.write_errors);
  message.set_dropped_lines(status.dropped_lines);
  if (!status.verdict.verdict.empty()) {
    message.set_exit(status.verdict.exit);
    if (!status.verdict.reason.empty()) message.set_reason(Cut(status.verdict.reason, kLong));
    if (!status.verdict.suspect_hosts.empty()) {
      message.set_suspect_hosts(Cut(status.verdict.suspect_hosts, kMiddle));
    }
  }
  return FlatJson(message);
}

}  // namespace gaccd
