// `gaccd export PATH --format=...`: events and metrics of a run in formats of other programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/output.h"
#include "collectives/base/result.h"

namespace gaccd {

enum class ExportFormat : std::uint8_t { kCsv, kChromeTrace, kOtlpJson, kTensorboard, kPrometheus };

struct ExportRequest {
  std::string folder = ".";
  std::string attempt;  // see ListAttempts(); not for Prometheus
  ExportFormat format = ExportFormat::kCsv;
  std::string out;  // the file, for TensorBoard a folder; empty: standard output
};

// Logs problems of the files of the run as warnings. Prometheus: also accepts a folder of run
// folders; omits runs that wrote nothing for a day, and warns of runs that cannot be read. kUsage:
// no run folder, no such attempt, TensorBoard without a folder, Prometheus with an attempt; kIo:
// `out`.
Status RunExportCommand(const ExportRequest& request);

// The formats, except prometheus.h. attempt: see ListAttempts(). notes: set to problems of the
// files of the run. Errors: EventStream::Open(), and of the output.

// CSV (RFC 4180): one row per event and one column per key, in the order in which keys first
// appear; the first column is attempt_dir. Null and missing values are empty. Reads the run twice.
Status ExportCsv(const std::string& run_dir, const std::string& attempt, TextSink& out,
                 std::vector<std::string>* notes);

// A trace for chrome://tracing and https://ui.perfetto.dev (Trace Event Format). One process per
// attempt, with rows for updates and their phases (in sequence, although reading and reducing
// overlap with computing), saves, evaluations and resume, and problems. Counters: loss and samples
// per second.
Status ExportChromeTrace(const std::string& run_dir, const std::string& attempt, TextSink& out,
                         std::vector<std::string>* notes);

// OpenTelemetry metrics: lines of JSON that the collector's otlpjsonfile receiver reads. Every line
// is an ExportMetricsServiceRequest in protobuf's JSON: gauges of scalars.h for up to 100 events of
// one attempt, which is the resource (service.name, gaccd.run, gaccd.attempt, slurm.job.id,
// host.name).
Status ExportOtlpJson(const std::string& run_dir, const std::string& attempt, TextSink& out,
                      std::vector<std::string>* notes);

// Writes <folder>/<attempt>/events.out.tfevents.<start>.<host>.gaccd for TensorBoard. Each attempt
// is a run of TensorBoard, so that repeated updates are separate curves. A file is a TFRecord of
// the scalars of scalars.h, written atomically.
Status ExportTensorboard(const std::string& run_dir, const std::string& attempt,
                         const std::string& folder, std::vector<std::string>* notes);

}  // namespace gaccd
