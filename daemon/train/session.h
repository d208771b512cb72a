// What one rank of `gaccd train` owns.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/comm/communicator.h"
#include "collectives/liveness/heartbeat/peer_watch.h"
#include "daemon/checkpoint/writer.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"
#include "daemon/preflight/attention_choice.h"
#include "daemon/preflight/device_choice.h"
#include "daemon/rundir/verdict_guard.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/stop/stop_signals.h"
#include "daemon/train/trainer.h"
#include "daemon/train/weights.h"
#include "slurm/environment.h"

namespace gaccd {

struct Setup {
  Job job;
  Plan plan;
  std::unique_ptr<Trainer> trainer;  // null until the data is opened
};

// Everything of this rank. Members are freed from the last to the first: the trainer before the
// communicator between its GPUs. It outlives the errors: what GPUs and network still
// hold may hang when it is freed, so a rank that was left alone ends before that.
struct Session {
  SlurmEnvironment slurm;
  VerdictGuard* guard = nullptr;  // of rank 0, or null
  Communicator& comm;
  StopSignals* signals = nullptr;
  std::unique_ptr<Communicator> between_gpus;  // several ranks on GPUs; over `comm`
  DeviceChoice device;
  AttentionChoice attention = {};  // on GPUs
  std::string bf16 = {};           // on CPUs: what computes it, for people
  std::optional<Setup> setup;
  std::optional<CheckpointLease> lease = {};  // to the checkpoints, until the checkpointer has it
  std::unique_ptr<PeerWatch> peers;
  std::optional<WeightsReport> init_weights = {};  // of --init-weights, on rank 0
  std::vector<std::string> resume_notes = {};      // passed over checkpoints, changes of the job
  std::optional<ResumeRecord> resumed = {};        // what the run continues from
  bool was_done = false;  // the run was complete, and is given more updates
  std::optional<StopAgreement> stops = {};
};

}  // namespace gaccd
