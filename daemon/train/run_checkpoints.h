// The checkpoints of one `gaccd train`: what its flags ask for, the right to write them, what the
// run continues from, and who saves.
#pragma once

#include <memory>
#include <string>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/rundir/run_reporter.h"
#include "daemon/train/checkpointer.h"
#include "daemon/train/session.h"

namespace gaccd {

[[nodiscard]] SavePolicy SavePolicyOf(const Flags& flags);

// kUsage: they are asked for without a run folder.
Status CheckCheckpointFlags(const Flags& flags);

// REQUIRES: flags.run_dir.
[[nodiscard]] std::string CheckpointFolder(const Flags& flags);

// Before anybody looks what the run continues from: a run that ends just now has committed its last
// checkpoint, or commits no more. Nothing without checkpoints. Collective.
Status AcquireLease(const Flags& flags, Session& session);

// An attempt that SLURM requeued continues from its own checkpoints, also where --resume names
// another one or none: that was where the first attempt began. Collective.
Status ResumeRun(const Flags& flags, Session& session);

// Of one checkpoint, over all ranks. REQUIRES: the data is opened.
[[nodiscard]] double CheckpointBytes(const Session& session);

// Null without checkpoints. Collective.
Result<std::unique_ptr<Checkpointer>> StartCheckpointer(const Flags& flags, Session& session,
                                                        RunReporter& reporter);

// The path of the checkpoint that holds the state after `updates` updates: the last that was saved,
// or the one that the run continued from. Empty: there is none.
[[nodiscard]] std::string CheckpointAfter(std::int64_t updates, const Flags& flags,
                                          const Session& session, const Checkpointer* checkpointer);

}  // namespace gaccd
