// Events of the whole run: its start, heartbeats, its log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/plan/plan.h"
#include "daemon/telemetry/event_record.h"

namespace gaccd {

class JsonObject;

struct RunStart {
  static constexpr const char* kEvent = "run_start";

  std::string version;
  std::string git;
  std::string mpi;   // library version; empty without MPI
  std::string comm;  // the communicator's name
  std::int64_t nodes = 1;
  std::int64_t world = 1;
  std::string partition;  // of SLURM; empty outside
  std::string account;
  std::string nodelist;
  std::string config_sha;  // digest of the resolved job
  std::string model;       // for users, for example "784-512-512-10"
  std::int64_t parameters = 0;
  // of its matrix products, mean over the samples: Model::FlopsPerSample()
  double flops_per_sample = 0;
  double peak_flops = 0;                  // per second, of a rank's GPU; 0: not known
  std::int64_t memory_planned_bytes = 0;  // of this rank; 0: not known
  std::int64_t train_samples = 0;
  std::int64_t eval_samples = 0;
  std::string device;                    // "cpu", "cuda"
  std::string device_reason;             // "device cpu: no NVIDIA driver"
  std::string precision;                 // "f32", "bf16"
  std::optional<double> ema_decay = {};  // of the average of the weights, if there is one
  std::string gpu;                       // of rank 0, like the versions; empty on CPUs
  std::int64_t gpu_memory_planned_bytes = 0;
  std::string cuda;
  std::string driver;  // the CUDA version supported by the driver
  std::string cublaslt;
  std::string cudnn;  // if loaded: for attention in bf16
  std::string nccl;

  static void VisitFields(auto& fields, auto& start) {
    fields.Text("version", start.version, kMaxName);
    fields.Text("git", start.git, kMaxName);
    fields.Text("mpi", start.mpi, kMaxName);
    fields.Text("comm", start.comm, kMaxName);
    fields("nodes", start.nodes);
    fields("world", start.world);
    fields.Text("partition", start.partition, kMaxName);
    fields.Text("account", start.account, kMaxName);
    fields.Text("nodelist", start.nodelist, kMaxList);
    fields.Text("config_sha", start.config_sha, 2 * kMaxName);
    fields.Text("model", start.model, kMaxName);
    fields("parameters", start.parameters);
    fields("flops_per_sample", start.flops_per_sample);
    fields.When(start.peak_flops > 0, [&] { fields("peak_flops", start.peak_flops); });
    fields.NotZero("memory_planned_bytes", start.memory_planned_bytes);
    fields("train_samples", start.train_samples);
    fields("eval_samples", start.eval_samples);
    fields.Text("device", start.device, kMaxWord);
    fields.Text("device_reason", start.device_reason, kMaxList / 2);
    fields.Text("precision", start.precision, kMaxWord);
    fields("ema_decay", start.ema_decay);
    fields.Text("gpu", start.gpu, kMaxName);
    fields.NotZero("gpu_memory_planned_bytes", start.gpu_memory_planned_bytes);
    fields.Text("cuda", start.cuda, kMaxWord);
    fields.Text("driver", start.driver, kMaxWord);
    fields.Text("cublaslt", start.cublaslt, kMaxWord);
    fields.Text("cudnn", start.cudnn, kMaxWord);
    fields.Text("nccl", start.nccl, kMaxWord);
  }
};

// The resolved plan; write-only.
struct PlanRecord {
  static constexpr const char* kEvent = "plan";

  const Plan& plan;
  std::string text;  // for users; printed, not in the event

  static void VisitFields(JsonObject& fields, const PlanRecord& record);
};

// A stage of the start begins; write-only.
struct StageRecord {
  static constexpr const char* kEvent = "starting";

  const char* stage = "";  // a literal: "data", "device", "memory", "checkpoint"

  static void VisitFields(auto& fields, auto& record) {
    fields.Text("stage", record.stage, kMaxName);
  }
};

// The current state of rank 0, written if there was no other event for a while.
struct HeartbeatRecord {
  static constexpr const char* kEvent = "heartbeat";

  std::string phase;  // "compute", "reduce"; before the first update a stage of the start
  std::int64_t step = 0;
  std::int64_t micro_step = 0;
  double quiet_s = 0;  // since the previous line

  static void VisitFields(auto& fields, auto& heartbeat) {
    fields.Text("phase", heartbeat.phase, kMaxName);
    fields("step", heartbeat.step);
    fields("micro_step", heartbeat.micro_step);
    fields("quiet_s", heartbeat.quiet_s);
  }
};

// Memory of rank 0 at the end.
struct MemoryRecord {
  static constexpr const char* kEvent = "memory";

  std::int64_t measured_bytes = 0;  // resident, without memory shared by processes
  std::int64_t planned_bytes = 0;

  static void VisitFields(auto& fields, auto& memory) {
    fields("measured_bytes", memory.measured_bytes);
    fields("planned_bytes", memory.planned_bytes);
  }
};

// An allocation on one rank failed; from then on its micro-batches run in parts, or it recomputes
// blocks.
struct AllocationRetryRecord {
  static constexpr const char* kEvent = "allocation_retry";

  std::int64_t step = 0;        // the update, from 1; 0: before the first one
  std::int64_t micro_step = 0;  // of the update, from 1; 0: before the first one
  // The maximum samples per micro-step, and the planned memory of the engine.
  std::int64_t samples_before = 0;
  std::int64_t samples = 0;
  std::int64_t bytes_before = 0;
  std::int64_t bytes = 0;
  bool recompute = false;  // from then on
  std::string reason;

  [[nodiscard]] std::string_view level() const { return "warning"; }
  static void VisitFields(auto& fields, auto& retry) {
    fields("step", retry.step);
    fields("micro_step", retry.micro_step);
    fields("samples_before", retry.samples_before);
    fields("samples", retry.samples);
    fields("bytes_before", retry.bytes_before);
    fields("bytes", retry.bytes);
    fields("recompute", retry.recompute);
    fields.Text("reason", retry.reason, kMaxMessage);
  }
};

// A warning of the text log; write-only.
struct LogLine {
  static constexpr const char* kEvent = "log";

  std::string_view level;  // "warning"
  std::string_view file;   // without folders
  int line = 0;
  std::string_view message;
  std::int64_t step = 0;  // updates done; set by the reporter

  static void VisitFields(auto& fields, auto& log) {
    fields("step", log.step);
    fields.Text("file", log.file, kMaxName);
    fields("line", log.line);
    fields.Text("msg", log.message, kMaxMessage);
  }
};

// Lines of this file before this one are lost; its seq and ts are those of the last lost line.
struct DroppedLines {
  static constexpr const char* kEvent = "dropped";

  std::int64_t lines = 0;  // since the last report
  std::int64_t total = 0;  // since the start
  std::string reason;      // of the first lost line

  static void VisitFields(auto& fields, auto& dropped) {
    fields("lines", dropped.lines);
    fields("lines_total", dropped.total);
    fields.Text("reason", dropped.reason, kMaxMessage);
  }
};

}  // namespace gaccd
