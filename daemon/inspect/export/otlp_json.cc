#include <map>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/inspect/export/exports.h"
#include "daemon/inspect/export/scalars.h"
#include "daemon/inspect/watch/event_stream.h"

namespace gaccd {
namespace {

constexpr int kEventsOfALine = 100;

std::string Attribute(std::string_view key, std::string_view text) {
  return StrCat(R"({"key":")", key, R"(","value":{"stringValue":)", JsonString(text), "}}");
}

std::string Resource(const Event& event) {
  return StrCat(R"({"attributes":[)", Attribute("service.name", "gaccd"), ",",
                Attribute("gaccd.run", event.Text("run")), ",",
                Attribute("gaccd.attempt", event.attempt), ",",
                Attribute("slurm.job.id", event.Text("job")), ",",
                Attribute("host.name", event.Text("host")), "]}");
}

// The events of one line.
class Batch {
 public:
  explicit Batch(TextSink& out) : out_(out) {}

  Status Add(const Event& event) {
    if (event.attempt != attempt_ || events_ == kEventsOfALine) GACCD_RETURN_IF_ERROR(Flush());
    if (resource_.empty()) {
      attempt_ = event.attempt;
      resource_ = Resource(event);
    }
    const std::string time = NumberText(NanosecondsSinceEpoch(event.at));
    bool any = false;
    ForEachScalar(event, [&](const Scalar& scalar) {
      std::string& points = points_[{scalar.name, std::string(scalar.unit)}];
      if (!points.empty()) points += ',';
      points.append(R"({"timeUnixNano":")").append(time).append(R"(","asDouble":)");
      points.append(NumberText(scalar.value)) += '}';
      any = true;
    });
    if (any) ++events_;
    return {};
  }

  Status Flush() {
    const std::string resource = std::exchange(resource_, "");
    const auto points = std::exchange(points_, {});
    events_ = 0;
    if (points.empty()) return {};
    std::string metrics;
    for (const auto& [metric, list] : points) {
      metrics +=
          StrCat(metrics.empty() ? "" : ",", R"({"name":)", JsonString(metric.first), R"(,"unit":)",
                 JsonString(metric.second), R"(,"gauge":{"dataPoints":[)", list, "]}}");
    }
    return out_.Write(StrCat(R"({"resourceMetrics":[{"resource":)", resource,
                             R"(,"scopeMetrics":[{"scope":{"name":"gaccd"},"metrics":[)", metrics,
                             "]}]}]}\n"));
  }

 private:
  TextSink& out_;
  std::string attempt_;
  std::string resource_;
  std::map<std::pair<std::string, std::string>, std::string> points_;  // by name and unit
  int events_ = 0;
};

}  // namespace

Status ExportOtlpJson(const std::string& run_dir, const std::string& attempt, TextSink& out,
                      std::vector<std::string>* notes) {
  GACCD_ASSIGN_OR_RETURN(EventStream stream, EventStream::Open(run_dir, attempt));
  Batch batch(out);
  Event event;
  while (stream.Next(&event)) GACCD_RETURN_IF_ERROR(batch.Add(event));
  *notes = stream.notes();
  return batch.Flush();
}

}  // namespace gaccd
