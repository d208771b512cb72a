// What a run can say, as plain values. Each struct is one kind of line in events.jsonl, by
// event_text.h; durations are seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/plan/plan.h"

namespace gaccd {

// The writer of a line: the same on every line of a file.
struct RunIdentity {
  std::string run;  // the job's name
  std::string job;  // SLURM job id, or "local-<pid>"
  int attempt = 0;  // SLURM_RESTART_COUNT, or the count of local attempts in this folder
  int rank = 0;
  std::string host;
};

struct RunStart {
  std::string version;
  std::string git;
  std::string mpi;   // library version; empty when MPI is not used
  std::string comm;  // name of the communicator
  std::int64_t nodes = 1;
  std::int64_t world = 1;
  std::string partition;  // SLURM; empty outside
  std::string account;
  std::string nodelist;
  std::string config_sha;  // digest of the resolved job
  std::string model;       // for people, for example "784-512-512-10"
  std::int64_t parameters = 0;
  double flops_per_sample = 0;  // of its matrix products, in the mean: Model::FlopsPerSample()
  double peak_flops = 0;        // per second, of a rank's GPU; 0 = not known
  std::int64_t memory_planned_bytes = 0;  // of this rank; 0 = not known
  std::int64_t train_samples = 0;
  std::int64_t eval_samples = 0;
  std::string device;                    // "cpu", "cuda"
  std::string device_reason;             // "device cpu: no NVIDIA driver"
  std::string precision;                 // "f32", "bf16"
  std::optional<double> ema_decay = {};  // of the average of the weights, where there is one
  std::string gpu;                       // of rank 0, as the versions; empty on CPUs
  std::int64_t gpu_memory_planned_bytes = 0;
  std::string cuda;
  std::string driver;  // the CUDA version that the driver knows
  std::string cublaslt;
  std::string cudnn;  // where it is loaded: for attention in bf16
  std::string nccl;
};

struct SlowRank {
  int rank = 0;
  std::string host;
  std::string phase;  // "data", "compute", "stopped"
  double ratio = 1;   // its busy time / the median over the ranks
};

// Of an update in fp16.
struct LossScaleRecord {
  double scale = 1;  // what its loss was multiplied with
  std::int64_t growth_tracker =
      0;  // updates since it changed, this one included; 0: it changes now
};

// One update; loss and grad_norm are null in JSON when they are not finite, and loss_finite and
// grad_finite say so. The straggler is that of the newest update whose times all ranks knew when
// this one began: the one before, on GPUs the one before that. The reporter adds samples_per_s,
// dur_p50_s, dur_p99_s and eta_s.
struct StepRecord {
  std::int64_t epoch = 1;             // counted from 1
  std::int64_t step = 0;              // updates done, this one included
  std::int64_t steps_total = 0;       // of the whole run
  std::int64_t samples = 0;           // counted by the audit over all ranks
  std::int64_t target = 0;            // planned for this update
  std::int64_t samples_total = 0;     // of the run so far, this update included
  double loss = 0;                    // sum over `divisor`
  double divisor = 0;                 // how many units count
  std::string_view unit = "samples";  // or "tokens", "weights"
  double grad_norm = 0;               // before clipping
  double lr = 0;
  bool skipped = false;                       // the gradient was not finite: no optimiser step
  std::optional<LossScaleRecord> loss_scale;  // of fp16
  // dur_s = data_s + fwd_bwd_s + reduce_s + opt_s (+ what lies between).
  double dur_s = 0;
  double data_s = 0;
  double fwd_bwd_s = 0;
  double reduce_s = 0;
  double opt_s = 0;
  // The rank that was busy for longest, and how long this one waited for it.
  std::optional<SlowRank> straggler;
  std::optional<double> wait_s;
  std::string digest;  // of the parameters after this update, 16 hex digits; empty: not taken
};

// Of an evaluation: "accuracy", "f1_macro", ... (daemon/metrics/metric.h).
struct MetricValue {
  std::string name;
  double value = 0;
};

// The best evaluation of a run so far.
struct BestValue {
  std::string metric;  // "loss", "accuracy", ...
  double value = 0;
  std::int64_t step = 0;  // updates before it; of equal values the first one
};

struct EvalRecord {
  std::int64_t epoch = 1;
  std::int64_t step = 0;
  std::int64_t samples = 0;
  double loss = 0;                    // sum over `divisor`
  double divisor = 0;                 // how many units count
  std::string_view unit = "samples";  // or "tokens", "weights"
  std::vector<MetricValue> metrics;   // as the job names them
  double dur_s = 0;
  std::optional<BestValue> best = {};  // of a training, this one included
};

// A checkpoint that was committed, or given up.
struct SaveRecord {
  std::string generation;  // its folder's name
  std::int64_t step = 0;   // updates it holds
  std::int64_t micro_step = 0;
  std::int64_t writer_epoch = 0;
  std::string reason;  // why it failed; empty: committed
  std::int64_t failed_in_row = 0;
  std::int64_t bytes = 0;  // of all ranks
  double stall_s = 0;      // how long training waited
  double dur_s = 0;        // from its boundary until it was known to be committed
};

// What --init-weights gave the model. Names with shapes, "a [3, 12], b [3]".
struct WeightsRecord {
  std::string file;
  std::int64_t parameters = 0;  // of the model
  std::int64_t loaded = 0;      // of these
  std::string fresh;            // the others
  std::string unused;           // tensors of the file, without shapes
};

// What an attempt continues from.
struct ResumeRecord {
  std::string generation;
  std::string folder;  // in which it was found
  std::int64_t step = 0;
  std::int64_t micro_step = 0;
  std::int64_t writer_epoch = 0;
  std::int64_t samples_total = 0;        // used before
  std::int64_t skipped_checkpoints = 0;  // newer checkpoints that are damaged
  std::int64_t bytes = 0;                // of all ranks
  double dur_s = 0;                      // to find, verify and load it
  std::optional<BestValue> best = {};    // evaluation before it
};

// What rank 0 is doing, written when there was no other event for a while.
struct HeartbeatRecord {
  std::string_view phase;  // "compute", "reduce"; before the first update a stage of the start
  std::int64_t step = 0;
  std::int64_t micro_step = 0;
  double quiet_s = 0;  // since the line before
};

// At the end, of rank 0.
struct MemoryRecord {
  std::int64_t measured_bytes = 0;  // resident, less what the process shares
  std::int64_t planned_bytes = 0;
};

// A warning of the text log.
struct LogLine {
  std::string_view level;  // "warning"
  std::string_view file;   // name without folders
  int line = 0;
  std::string_view message;
};

// A rank that is thought to be the cause of a failure: the heartbeat found it lost.
struct Suspect {
  int rank = 0;
  std::string host;
  bool ended = false;             // its process does not exist
  std::int64_t memory_bytes = 0;  // resident, at its last sign of life; 0 = not known
};

// What is known about a failure beyond its message; everything is optional.
struct FailureFacts {
  int rank = -1;                          // who says so
  std::vector<Suspect> suspects;          // lost ranks, the first one first
  std::vector<int> gave_up;               // left because of somebody else
  std::vector<std::string> hosts = {};    // by rank
  std::int64_t memory_planned_bytes = 0;  // of a rank; 0 = not known
  std::string collective;                 // that this rank was in: "all_reduce_sum"
  std::optional<std::int64_t> sequence;   // the number of that collective, from 1
  bool silent = false;  // nothing was heard of the suspect: it, or this rank, may be cut off
};

// What a rank leaves behind when it fails.
struct Failure {
  int exit = 0;    // exit code, 0 after a signal
  int signal = 0;  // SIGSEGV, ...; 0: none
  std::int64_t step = 0;
  std::string phase;
  std::int64_t micro_step = 0;
  std::string collective;
  std::optional<std::int64_t> sequence;
  std::string message;
  std::vector<int> lost_ranks = {};  // what this rank saw, where another one is the cause
};

// How the run ended. `verdict`: a Name(NextStep), next_step.h.
struct Verdict {
  std::string verdict;
  int exit = 0;
  std::string reason;  // empty when done, unless it was before the last update
  std::int64_t last_step = 0;
  std::int64_t samples_total = 0;
  double dur_s = 0;
  std::string suspect_hosts;             // "n3,n7", as sbatch --exclude takes it; empty: none
  std::optional<Suspect> first;          // the first suspect
  std::optional<Failure> first_failure;  // what it left behind, if anything
  std::vector<int> lost_ranks = {};      // all suspects
  bool killed = false;                   // the first has ended, and left nothing behind
  std::int64_t memory_planned_bytes = 0;
};

}  // namespace gaccd
