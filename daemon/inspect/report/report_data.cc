#include "daemon/inspect/report/report_data.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/inspect/watch/event_stream.h"
#include "daemon/rundir/ledger.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxSaves = 12;
constexpr std::size_t kMaxWarnings = 12;
constexpr std::size_t kMaxMetrics = 12;  // plotted

double Seconds(const Event& event, std::string_view key) {
  const double seconds = event.Number(key).value_or(0);
  return std::isfinite(seconds) ? std::max(0.0, seconds) : 0;
}

template <typename T>
void KeepNewest(T value, std::size_t most, std::vector<T>* values) {
  if (values->size() == most) values->erase(values->begin());
  values->push_back(std::move(value));
}

// Builds the report data from events.
class ReportDataBuilder {
 public:
  explicit ReportDataBuilder(ReportData* data) : data_(*data) {}

  void Add(const Event& event);
  // To be called after all events. attempts: including those without events.
  void Finish(std::size_t attempts);

 private:
  AttemptData& attempt() { return data_.attempts.back(); }
  [[nodiscard]] std::vector<Curve*> Curves();
  void BeginAttempt(const Event& event);
  // Marks the updates after this one as lost.
  void RewindTo(std::int64_t step);
  void AddStep(const Event& event);
  void AddThinned(const Event& event);
  void AddPhases(std::int64_t updates, std::int64_t step, const Event& event);
  void AddSlowRank(std::int64_t step, const Event& event);
  void AddFailure(const Event& event);
  void AddEval(const Event& event);
  static void AddPoint(std::int64_t step, const std::optional<double>& value, Curve* curve) {
    if (value && std::isfinite(*value)) curve->Add(step, *value);
  }

  ReportData& data_;
  FigureSum figures_;
  std::vector<double> durations_;
  std::optional<Event> start_;  // run_start of the previous attempt
};

std::vector<Curve*> ReportDataBuilder::Curves() {
  std::vector<Curve*> curves{&data_.loss, &data_.gradient_norm, &data_.learning_rate,
                             &data_.slow_updates};
  for (auto& [metric, curve] : data_.evals) curves.push_back(&curve);
  return curves;
}

void ReportDataBuilder::RewindTo(std::int64_t step) {
  for (Curve* const curve : Curves()) curve->RewindTo(step);
}

void ReportDataBuilder::Add(const Event& event) {
  figures_.Add(event);
  if (data_.attempts.empty() || attempt().name != event.attempt) BeginAttempt(event);
  attempt().end = std::max(attempt().end, event.at);
  if (event.name == "run_start") {
    if (start_) attempt().changes = StartChanges(*start_, event);
    start_ = event;
  }
  if (event.name == "resume") RewindTo(event.Whole("step").value_or(0));
  if (event.name == "step") AddStep(event);
  if (event.name == "thinned") AddThinned(event);
  if (event.name == "eval") AddEval(event);
  if (event.name == "failure") AddFailure(event);
  if (event.name == "save") KeepNewest(event, kMaxSaves, &data_.saves);
  if (event.name == "log") {
    KeepNewest(StrCat(event.Text("ts"), " ", event.Text("msg")), kMaxWarnings, &data_.warnings);
  }
  if (event.name == "verdict") {
    if (const auto exit = event.Whole("exit")) {
      attempt().exit = static_cast<int>(std::clamp<std::int64_t>(*exit, 0, 255));
    }
    attempt().verdict = event.Text("verdict");
    attempt().reason = event.Text("reason");
  }
}

void ReportDataBuilder::BeginAttempt(const Event& event) {
  data_.attempts.push_back({.name = event.attempt, .begin = event.at, .end = event.at});
  for (Curve* const curve : Curves()) curve->BeginPiece();
}

void ReportDataBuilder::AddStep(const Event& event) {
  const std::int64_t step = event.Whole("step").value_or(0);
  if (step < 1 || step > kMaxSteps) return;
  const double dur_s = Seconds(event, "dur_s");
  if (attempt().updates++ == 0) {
    RewindTo(step - 1);
    attempt().first_step = step;
    attempt().init_s = std::max(0.0, SecondsBetween(attempt().begin, event.at) - dur_s);
  }
  attempt().last_step = step;
  data_.first_step = data_.first_step == 0 ? step : std::min(data_.first_step, step);
  data_.last_step = std::max(data_.last_step, step);
  durations_.push_back(dur_s);
  const auto samples = event.Whole("samples");
  data_.on_target += samples && samples == event.Whole("target") ? 1 : 0;
  AddPoint(step, event.Number("loss"), &data_.loss);
  AddPoint(step, event.Number("grad_norm"), &data_.gradient_norm);
  AddPoint(step, event.Number("lr"), &data_.learning_rate);
  AddPoint(step, event.Number("dur_p99_s"), &data_.slow_updates);
  AddPhases(1, step, event);
  AddSlowRank(step, event);
}

// For updates without their own lines only sums are known.
void ReportDataBuilder::AddThinned(const Event& event) {
  const StepSum sum = StepSum::FromEvent(event);
  if (sum.updates == 0) return;
  attempt().updates += sum.updates;
  data_.on_target += sum.on_target;
  data_.thinned += sum.updates;
  AddPhases(sum.updates, sum.last, event);
}

void ReportDataBuilder::AddPhases(std::int64_t updates, std::int64_t step, const Event& event) {
  const double wait_s = std::min(Seconds(event, "wait_s"), Seconds(event, "reduce_s"));
  PhaseSum sum{.updates = updates,
               .data_s = Seconds(event, "data_s"),
               .compute_s = Seconds(event, "fwd_bwd_s"),
               .reduce_s = Seconds(event, "reduce_s") - wait_s,
               .wait_s = wait_s,
               .optimizer_s = Seconds(event, "opt_s")};
  const double known = sum.data_s + sum.compute_s + sum.reduce_s + sum.wait_s + sum.optimizer_s;
  sum.other_s = std::max(0.0, Seconds(event, "dur_s") - known);
  data_.phases.Add(step, sum);
}

void ReportDataBuilder::AddSlowRank(std::int64_t step, const Event& event) {
  SlowSum sum{.updates = 1};
  if (const auto rank = event.Whole("straggler_rank")) {
    sum.ranks[*rank] = 1;
    SlowestCount& slow = data_.slow_ranks[*rank];
    slow.host = event.Text("straggler_host");
    ++slow.updates;
    if (const double ratio = Seconds(event, "straggler_ratio"); ratio >= slow.worst_ratio) {
      slow.worst_ratio = ratio;
      slow.phase = event.Text("straggler_phase");
    }
  }
  data_.slow.Add(step, sum);
}

// A failure of a rank that only lost other ranks is replaced by the first other failure.
void ReportDataBuilder::AddFailure(const Event& event) {
  RankFailure failure = ParseFailure(event);
  std::vector<RankFailure>& known = attempt().failures;
  if (!failure.caused_by_others && !known.empty() && known.front().caused_by_others) {
    known.clear();
    ++attempt().more_failures;
  }
  if (!failure.caused_by_others && CountWithSame(failure, &known)) return;
  if ((failure.caused_by_others && !known.empty()) || known.size() == kMaxFailures) {
    ++attempt().more_failures;
  } else {
    known.push_back(std::move(failure));
  }
}

void ReportDataBuilder::AddEval(const Event& event) {
  const std::int64_t step = event.Whole("step").value_or(0);
  const std::string metric(event.Text("metric"));
  const bool known = data_.evals.contains(metric);
  if (step < 1 || step > kMaxSteps || (!known && data_.evals.size() == kMaxMetrics)) return;
  AddPoint(step, event.Number("value"), &data_.evals[metric]);
}

void ReportDataBuilder::Finish(std::size_t attempts) {
  data_.figures = std::move(figures_).Finish(attempts);
  if (durations_.empty()) return;
  std::ranges::sort(durations_);
  const auto quantile = [&](double share) {
    const double last = std::ceil(share * static_cast<double>(durations_.size())) - 1;
    return durations_[static_cast<std::size_t>(std::max(0.0, last))];
  };
  data_.p50_s = quantile(0.5);
  data_.p99_s = quantile(0.99);
  data_.longest_s = durations_.back();
}

// The ledger of the job script overrides how an attempt ended.
void ApplyLedger(const std::string& run_dir, ReportData* data) {
  for (const LedgerEntry& entry : ReadLedger(run_dir + "/ledger.jsonl")) {
    const auto found = std::ranges::find(data->attempts, entry.attempt, &AttemptData::name);
    if (found == data->attempts.end()) continue;
    found->exit = entry.exit;
    found->verdict = Name(entry.next);
    found->reason = entry.reason;
  }
}

// Adds changes, and attempts without events. The order is that of `attempts`.
void AddChanges(const std::vector<Attempt>& attempts, ReportData* data) {
  std::vector<AttemptData> reported = std::exchange(data->attempts, {});
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    const auto found = std::ranges::find(reported, attempts[i].name, &AttemptData::name);
    AttemptData one = found != reported.end() ? std::move(*found)
                                              : AttemptData{.name = attempts[i].name,
                                                            .begin = attempts[i].started,
                                                            .end = attempts[i].started};
    if (i > 0) {
      for (Change& change : EnvironmentChanges(attempts[i - 1], attempts[i])) {
        one.changes.push_back(std::move(change));
      }
      one.job_changes = JobTextChanges(attempts[i - 1], attempts[i]);
    }
    data->attempts.push_back(std::move(one));
  }
}

}  // namespace

PhaseSum& PhaseSum::operator+=(const PhaseSum& more) {
  updates += more.updates;
  data_s += more.data_s;
  compute_s += more.compute_s;
  reduce_s += more.reduce_s;
  wait_s += more.wait_s;
  optimizer_s += more.optimizer_s;
  other_s += more.other_s;
  return *this;
}

SlowSum& SlowSum::operator+=(const SlowSum& more) {
  updates += more.updates;
  for (const auto& [rank, count] : more.ranks) ranks[rank] += count;
  return *this;
}

Result<ReportData> ReadReportData(const std::string& run_dir, WallTime now, const JobFinder& find) {
  ReportData data{.folder_name = FolderName(run_dir), .read_at = now};
  GACCD_ASSIGN_OR_RETURN(data.diagnosis, DiagnoseFiles(run_dir, now, find));
  const bool has_begun = !data.diagnosis.newest.empty();
  if (!has_begun && !data.diagnosis.state.has_status) return data;
  GACCD_ASSIGN_OR_RETURN(EventStream stream, EventStream::Open(run_dir));
  ReportDataBuilder reader(&data);
  Event event;
  while (stream.Next(&event)) reader.Add(event);
  reader.Finish(CountStarts(stream.attempts()));
  data.diagnosis.notes = stream.notes();
  AddChanges(stream.attempts(), &data);
  ApplyLedger(run_dir, &data);
  const std::string& name = data.diagnosis.newest;
  const std::string attempt = name.empty() ? run_dir : StrCat(run_dir, "/attempts/", name);
  const auto job = ReadSmallFile(attempt + "/job.txtpb", ErrorKind::kData);
  if (job.ok()) data.job = *job;
  if (const auto& best = data.diagnosis.state.best) {
    data.best_is_saved = HasBest(run_dir + "/ckpt", best->step);
  }
  return data;
}

}  // namespace gaccd
