#include "daemon/inspect/export/scalars.h"

namespace gaccd {
namespace {

struct ScalarRow {
  const char* event;
  const char* key;
  const char* tag;
  const char* name;
  const char* unit;
};

constexpr ScalarRow kRows[] = {
    {"step", "loss", "loss", "gaccd.loss", "1"},
    {"step", "grad_norm", "grad_norm", "gaccd.gradient_norm", "1"},
    {"step", "lr", "lr", "gaccd.learning_rate", "1"},
    {"step", "loss_scale", "loss_scale", "gaccd.loss_scale", "1"},
    {"step", "samples", "batch/samples", "gaccd.batch.samples", "{sample}"},
    {"step", "target", "batch/target", "gaccd.batch.target", "{sample}"},
    {"step", "samples_total", "batch/samples_total", "gaccd.samples", "{sample}"},
    {"step", "samples_per_s", "speed/samples_per_s", "gaccd.throughput", "{sample}/s"},
    {"step", "mfu_ratio", "speed/mfu", "gaccd.mfu", "1"},
    {"step", "dur_s", "time/update_s", "gaccd.step.duration", "s"},
    {"step", "data_s", "time/data_s", "gaccd.step.data", "s"},
    {"step", "fwd_bwd_s", "time/fwd_bwd_s", "gaccd.step.forward_backward", "s"},
    {"step", "reduce_s", "time/reduce_s", "gaccd.step.reduce", "s"},
    {"step", "opt_s", "time/opt_s", "gaccd.step.optimizer", "s"},
    {"step", "wait_s", "time/wait_s", "gaccd.step.wait", "s"},
    {"step", "straggler_ratio", "straggler/ratio", "gaccd.straggler.ratio", "1"},
    {"save", "dur_s", "save/dur_s", "gaccd.checkpoint.duration", "s"},
    {"save", "stall_s", "save/stall_s", "gaccd.checkpoint.stall", "s"},
    {"save", "bytes", "save/bytes", "gaccd.checkpoint.size", "By"},
    {"eval", "dur_s", "eval/dur_s", "gaccd.eval.duration", "s"},
};

}  // namespace

void ForEachScalar(const Event& event, const std::function<void(const Scalar&)>& take) {
  // An evaluation has a line per metric, one of them for its loss, all with the same duration.
  const bool other_metric = event.name == "eval" && event.Text("metric") != "loss";
  for (const ScalarRow& row : kRows) {
    if (event.name != row.event || other_metric) continue;
    if (const auto value = event.Number(row.key)) take({row.tag, row.name, row.unit, *value});
  }
  if (event.name != "eval") return;
  const std::string metric(event.Text("metric"));
  if (const auto value = event.Number("value")) {
    take({"eval/" + metric, "gaccd.eval." + metric, "1", *value});
  }
}

}  // namespace gaccd
