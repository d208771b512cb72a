// Converts the flags of `gaccd train` to its job and the options of its parts.
#pragma once

#include <optional>

#include "collectives/base/environment.h"
#include "collectives/base/result.h"
#include "daemon/checkpoint/writer.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/engine/engine.h"
#include "daemon/stop/clocks.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/train/save_clock.h"
#include "daemon/train/training.h"
#include "daemon/weights/weights.h"
#include "slurm/environment.h"

namespace gaccd {

// The job of --job with the values of --set, and a check of the related flags. Call once: the run
// must use the job for which NCCL was configured.
Result<Job> ReadTrainingJob(const Flags& flags);
// The rules of --new-weights and --unused-weights.
[[nodiscard]] WeightRules MakeWeightRules(const Flags& flags);
// --memory in bytes.
[[nodiscard]] std::optional<std::int64_t> MemoryFlag(const Flags& flags);
[[nodiscard]] TrainGuards MakeTrainGuards(const Flags& flags);
[[nodiscard]] LoadChanges MakeLoadChanges(const Flags& flags);
[[nodiscard]] SavePolicy MakeSavePolicy(const Flags& flags);
// Patience with the previous attempt: at most half of --bound.
[[nodiscard]] OwnerPatience MakeOwnerPatience(const Flags& flags);
// REQUIRES: flags.run_dir.
[[nodiscard]] CheckpointOptions MakeCheckpointOptions(const Flags& flags, const Job& job);
// checkpoint_bytes: of one rank.
[[nodiscard]] StopOptions MakeStopOptions(const Flags& flags, const SlurmEnvironment& slurm,
                                          const Clocks& clocks, StopSignals* signals,
                                          bool checkpoints, double checkpoint_bytes);
// Sets whether a training on a GPU times matrix product algorithms, and where the choices are kept.
// Follows --time-algorithms; default: yes if there is a folder for them.
void SetTiming(const Flags& flags, const Environment& environment, EngineChoice* choice);

}  // namespace gaccd
