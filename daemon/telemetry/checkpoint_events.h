// Events about checkpoints and initial weights. Durations are seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/telemetry/eval_events.h"
#include "daemon/telemetry/event_record.h"

namespace gaccd {

// A checkpoint that was committed or failed.
struct SaveRecord {
  static constexpr const char* kEvent = "save";

  std::string generation;  // name of its folder
  std::int64_t step = 0;   // number of updates in it
  std::int64_t micro_step = 0;
  std::int64_t writer_epoch = 0;
  std::string reason;  // why it failed; empty: committed
  std::int64_t failed_in_row = 0;
  std::int64_t bytes = 0;  // over all ranks
  double stall_s = 0;      // time that training waited
  double dur_s = 0;        // from its boundary until the commit was known

  [[nodiscard]] std::string_view level() const { return reason.empty() ? "info" : "warning"; }
  static void VisitFields(auto& fields, auto& save) {
    fields("step", save.step);
    fields("micro_step", save.micro_step);
    fields.Text("generation", save.generation, kMaxName);
    fields("writer_epoch", save.writer_epoch);
    fields.Computed("ok", save.reason.empty());
    fields.Text("reason", save.reason, kMaxMessage);
    fields.NotZero("failed_in_row", save.failed_in_row);
    fields("bytes", save.bytes);
    fields("stall_s", save.stall_s);
    fields("dur_s", save.dur_s);
  }
};

// The weights loaded by --init-weights. Names with shapes: "a [3, 12], b [3]".
struct WeightsRecord {
  static constexpr const char* kEvent = "weights";

  std::string file;
  std::int64_t parameters = 0;  // of the model
  std::int64_t loaded = 0;      // of these
  std::string new_weights;      // parameters that were not loaded
  std::string unused;           // tensors of the file, without shapes

  static void VisitFields(auto& fields, auto& weights) {
    fields.Text("file", weights.file, kMaxList);
    fields("parameters", weights.parameters);
    fields("loaded", weights.loaded);
    fields.Text("fresh", weights.new_weights, kMaxList);
    fields.Text("unused", weights.unused, kMaxList);
  }
};

// The checkpoint from which an attempt continues.
struct ResumeRecord {
  static constexpr const char* kEvent = "resume";

  std::string generation;
  std::string folder;  // folder in which it was found
  std::int64_t step = 0;
  std::int64_t micro_step = 0;
  std::int64_t writer_epoch = 0;
  std::int64_t samples_total = 0;        // samples used before
  std::int64_t skipped_checkpoints = 0;  // newer checkpoints that are damaged
  std::int64_t bytes = 0;                // over all ranks
  double dur_s = 0;                      // time to find, verify and load it
  std::optional<BestValue> best = {};    // best evaluation before it; not in the event

  static void VisitFields(auto& fields, auto& resume) {
    fields("step", resume.step);
    fields("micro_step", resume.micro_step);
    fields.Text("generation", resume.generation, kMaxName);
    fields.Text("folder", resume.folder, kMaxMessage);
    fields("writer_epoch", resume.writer_epoch);
    fields("samples_total", resume.samples_total);
    fields("skipped_checkpoints", resume.skipped_checkpoints);
    fields("bytes", resume.bytes);
    fields("dur_s", resume.dur_s);
  }
};

}  // namespace gaccd
