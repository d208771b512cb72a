// The stages of `gaccd train`, in order: each is what the ranks do between two agreements. run.cc
// puts them together.
#pragma once

#include "collectives/base/result.h"
#include "collectives/bootstrap/agree.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/flags.h"
#include "daemon/stop/clocks.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/train/checkpointer.h"
#include "daemon/train/session.h"
#include "daemon/train/training.h"
#include "daemon/train/weights.h"

namespace gaccd {

// The job of --job with the values of --set, and a check of the flags that go with it. To be called
// once: the run must use the job that NCCL was configured for.
Result<Job> ReadTrainingJob(const Flags& flags);
// Of --new-weights and --unused-weights.
[[nodiscard]] WeightRules WeightRulesOf(const Flags& flags);
// The same binary, job and flags. Collective.
Status CheckAllTheSame(const Flags& flags, const Job& job, Communicator& comm);
// Makes the job say what it means from anywhere: absolute paths of data, and the names of the
// classes as they are in the data. Collective; kData where data.train and data.eval disagree.
Status ResolveJob(Communicator& comm, Job* job);
// Rank 0 will be able to write --save-weights. Collective.
Agreement CheckSaveWeights(const Flags& flags, Communicator& comm);
// What may take long: data and model. Collective.
Agreement OpenTraining(const Flags& flags, Session& session);
[[nodiscard]] StopOptions StopOptionsOf(const Flags& flags, const Session& session,
                                        const Clocks& clocks);
// The device of each rank, and what reduces between GPUs. Collective; the same result on every
// rank.
Status SelectDevice(const Flags& flags, const Job& job, Session& session);
// REQUIRES: SelectDevice().
[[nodiscard]] EngineChoice EngineChoiceOf(const Flags& flags, const Session& session);
// Memory, kernels, initial weights. Collective, but a rank may fail alone.
Status PrepareTrainer(const Flags& flags, Session& session);
// Of --init-weights. Collective.
Agreement LoadInitWeights(const Flags& flags, Session& session);
// After the last update, on rank 0: --save-weights, and the mark of a complete run.
Status WriteResults(const Flags& flags, Session& session, const TrainingSummary& summary,
                    const Checkpointer* checkpointer);

}  // namespace gaccd
