#include "daemon/telemetry/event_text.h"

#include <sys/time.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "daemon/config/plan_proto.h"
#include "daemon/plan/speeds.h"
#include "daemon/telemetry/eval_events.h"
#include "daemon/telemetry/run_events.h"
#include "proto/plan.pb.h"

namespace gaccd {

Status CheckLineVersion(const std::string& path, std::optional<std::int64_t> found) {
  if (found.value_or(kLineVersion) <= kLineVersion) return {};
  return {ErrorKind::kConfig,
          StrCat("'", path, "' was written by a newer gaccd: expected version <= ", kLineVersion,
                 ", found ", *found)};
}

std::string Timestamp() {
  timeval now{};
  ::gettimeofday(&now, nullptr);
  std::tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  return Format("%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ", utc.tm_year + 1900, utc.tm_mon + 1,
                utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_usec);
}

JsonObject MakeEnvelope(const RunIdentity& who, const LineStamp& stamp, const char* event) {
  JsonObject out;
  out("v", kLineVersion);
  out("ts", stamp.ts);
  out.Text("run", who.run, kMaxName);
  out.Text("job", who.job, kMaxName);
  out("attempt", who.attempt);
  out("rank", who.rank);
  out.Text("host", who.host, kMaxName);
  out("ev", event);
  out("lvl", stamp.level);
  out("seq", stamp.seq);
  return out;
}

void PlanRecord::VisitFields(JsonObject& fields, const PlanRecord& record) {
  proto::Plan message;
  FillPlanProto(record.plan, message);
  if (message.speeds().size() > kMaxSpeeds) message.clear_speeds();
  AppendFields(message, fields);
  fields.Text("loads", LoadsText(record.plan), kMaxList);
}

std::vector<MetricRecord> MetricRecords(const EvalRecord& eval) {
  std::vector<MetricRecord> records;
  const auto add = [&](const std::string& metric, double value) {
    MetricRecord record{.epoch = eval.epoch,
                        .step = eval.step,
                        .metric = metric,
                        .value = value,
                        .samples = eval.samples,
                        .divisor = eval.divisor,
                        .unit = eval.unit,
                        .dur_s = eval.dur_s};
    if (eval.best && eval.best->metric == metric) record.best = eval.best;
    records.push_back(std::move(record));
  };
  add("loss", eval.loss);
  for (const MetricValue& metric : eval.metrics) add(metric.name, metric.value);
  return records;
}

Result<std::unique_ptr<EventLog>> EventLog::Start(FileDescriptor file, std::string path,
                                                  unsigned mode, NoticeMaker notice) {
  AppendFile lines(std::move(file), std::move(path), mode);
  GACCD_ASSIGN_OR_RETURN(auto writer, LineWriter::Start(std::move(lines), std::move(notice)));
  return std::unique_ptr<EventLog>(new EventLog(std::move(writer)));
}

LineStamp EventLog::NextStamp(std::string_view level) {
  // ts never decreases, even if the clock is set back: texts sort like times.
  last_ts_ = std::max(last_ts_, Timestamp());
  return {last_ts_, ++seq_, level};
}

void EventLog::Write(std::string_view level, const LineMaker& make_line) {
  const std::lock_guard lock(mutex_);
  const LineStamp stamp = NextStamp(level);
  writer_->Add(make_line(stamp), stamp);
  last_write_ = std::chrono::steady_clock::now();
}

std::chrono::steady_clock::duration EventLog::quiet_for() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::steady_clock::now() - last_write_;
}

}  // namespace gaccd
