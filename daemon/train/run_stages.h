// The stages of `gaccd train`, in order: the work of the ranks between two agreements. run.cc calls
// them.
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
// The rules of --new-weights and --unused-weights.
[[nodiscard]] WeightRules WeightRulesOf(const Flags& flags);
// Checks that all ranks have the same binary, job and flags. Collective.
Status CheckAllTheSame(const Flags& flags, const Job& job, Communicator& comm);
// Makes the job independent of the current folder: absolute paths of data, and the names of the
// classes from the data. Collective; kData where data.train and data.eval disagree.
Status ResolveJob(Communicator& comm, Job* job);
// Checks that rank 0 can write --save-weights. Collective.
Agreement CheckSaveWeights(const Flags& flags, Communicator& comm);
// Opens the data and builds the model; may take long. Collective.
Agreement OpenTraining(const Flags& flags, Session& session);
[[nodiscard]] StopOptions StopOptionsOf(const Flags& flags, const Session& session,
                                        const Clocks& clocks);
// Selects the device of each rank and the communicator between GPUs. Collective; the same result on
// every rank.
Status SelectDevice(const Flags& flags, const Job& job, Session& session);
// REQUIRES: SelectDevice().
[[nodiscard]] EngineChoice EngineChoiceOf(const Flags& flags, const Session& session);
// Allocates memory, prepares kernels, initialises weights. Collective, but a rank may fail alone.
Status PrepareTrainer(const Flags& flags, Session& session);
// Loads --init-weights. Collective.
Agreement LoadInitWeights(const Flags& flags, Session& session);
// After the last update, on rank 0: writes --save-weights and the marker of a complete run.
Status WriteResults(const Flags& flags, Session& session, const TrainingSummary& summary,
                    const Checkpointer* checkpointer);

}  // namespace gaccd
