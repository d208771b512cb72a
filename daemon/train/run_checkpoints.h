// The checkpoints of one `gaccd train`: the policy of its flags, the lease to write them, the
// checkpoint to resume from, and the Checkpointer.
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

// kUsage: checkpoints without a run folder.
Status CheckCheckpointFlags(const Flags& flags);

// REQUIRES: flags.run_dir.
[[nodiscard]] std::string CheckpointFolder(const Flags& flags);

// Takes the lease of the checkpoint folder. To be called before the resume point is looked for: a
// run that ends just now has then committed its last checkpoint, or commits no more. Does nothing
// without checkpoints. Collective.
Status AcquireLease(const Flags& flags, Session& session);

// Restores the newest checkpoint of --resume, if any. An attempt that SLURM requeued resumes from
// its own checkpoints whatever --resume says: that flag is for the first attempt. Collective.
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
