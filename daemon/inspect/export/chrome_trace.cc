#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/inspect/export/exports.h"
#include "daemon/inspect/watch/event_stream.h"

namespace gaccd {
namespace {

enum Row : int { kUpdates, kSaves, kOther, kProblems };

struct Phase {
  const char* key;
  const char* name;
};
constexpr Phase kPhases[] = {{"data_s", "data"},
                             {"fwd_bwd_s", "forward and backward"},
                             {"reduce_s", "reduce"},
                             {"opt_s", "optimizer"}};

class Trace {
 public:
  explicit Trace(TextSink& out) : out_(out) {}

  Status Add(const Event& event) {
    if (event.attempt != attempt_) GACCD_RETURN_IF_ERROR(Begin(event));
    if (event.name == "step") return AddStep(event);
    if (event.name == "save") {
      return Slice(event, kSaves, StrCat("save after update ", event.Whole("step").value_or(0)));
    }
    // An evaluation has a line per metric; use one of them.
    const bool evaluates = event.name == "eval" && event.Text("metric") == "loss";
    if (evaluates || event.name == "resume") return Slice(event, kOther, event.name);
    if (event.name == "log" || event.name == "failure" || event.name == "verdict") {
      return Instant(event);
    }
    return {};
  }

  Status End() { return out_.Write(first_ ? "{\"traceEvents\":[]}\n" : "\n]}\n"); }

 private:
  static double Microseconds(WallTime at) { return SecondsSinceEpoch(at) * 1e6; }

  // args: a JSON object, or empty.
  Status Write(JsonObject object, std::string_view args = "") {
    std::string text = object.Finish();
    if (!args.empty()) {
      text.pop_back();
      text.append(",\"args\":").append(args) += '}';
    }
    const char* const before = first_ ? "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" : ",\n";
    first_ = false;
    return out_.Write(before + text);
  }

  [[nodiscard]] JsonObject Object(std::string_view name, const char* kind, int row,
                                  double at) const {
    JsonObject object;
    object("name", name);
    object("ph", kind);
    object("pid", process_);
    object("tid", row);
    object("ts", at);
    return object;
  }

  Status Name(const char* what, int row, std::string_view name) {
    JsonObject args;
    args("name", name);
    return Write(Object(what, "M", row, 0), args.Finish());
  }

  Status Begin(const Event& event) {
    attempt_ = event.attempt;
    ++process_;
    GACCD_RETURN_IF_ERROR(Name("process_name", 0, Printable(StrCat("attempt ", attempt_))));
    GACCD_RETURN_IF_ERROR(Name("thread_name", kUpdates, "updates"));
    GACCD_RETURN_IF_ERROR(Name("thread_name", kSaves, "saves"));
    GACCD_RETURN_IF_ERROR(Name("thread_name", kOther, "evaluation, resume"));
    return Name("thread_name", kProblems, "warnings, failures, verdict");
  }

  // An interval that ended when its event was written.
  Status Slice(const Event& event, int row, const std::string& name) {
    const double dur = event.Number("dur_s").value_or(0) * 1e6;
    JsonObject object = Object(name, "X", row, Microseconds(event.at) - dur);
    object("dur", dur);
    return Write(std::move(object), event.line);
  }

  Status AddStep(const Event& event) {
    const std::string name = StrCat("update ", event.Whole("step").value_or(0));
    GACCD_RETURN_IF_ERROR(Slice(event, kUpdates, name));
    double at = Microseconds(event.at) - event.Number("dur_s").value_or(0) * 1e6;
    for (const Phase& phase : kPhases) {
      const double dur = event.Number(phase.key).value_or(0) * 1e6;
      JsonObject object = Object(phase.name, "X", kUpdates, at);
      object("dur", dur);
      GACCD_RETURN_IF_ERROR(Write(std::move(object)));
      at += dur;
    }
    for (const char* key : {"loss", "samples_per_s"}) {
      const auto value = event.Number(key);
      if (!value) continue;
      JsonObject args;
      args(key, *value);
      GACCD_RETURN_IF_ERROR(Write(Object(key, "C", 0, Microseconds(event.at)), args.Finish()));
    }
    return {};
  }

  Status Instant(const Event& event) {
    std::string name = event.name;
    if (event.name != "verdict")
      name = StrCat("rank ", event.Whole("rank").value_or(0), ": ", name);
    JsonObject object = Object(name, "i", kProblems, Microseconds(event.at));
    object("s", "p");  // scope: process, all rows of the attempt
    return Write(std::move(object), event.line);
  }

  TextSink& out_;
  std::string attempt_;
  int process_ = 0;
  bool first_ = true;
};

}  // namespace

Status ExportChromeTrace(const std::string& run_dir, const std::string& attempt, TextSink& out,
                         std::vector<std::string>* notes) {
  GACCD_ASSIGN_OR_RETURN(EventStream stream, EventStream::Open(run_dir, attempt));
  Trace trace(out);
  Event event;
  while (stream.Next(&event)) GACCD_RETURN_IF_ERROR(trace.Add(event));
  *notes = stream.notes();
  return trace.End();
}

}  // namespace gaccd
