// Verbs of a trained model: all ranks run them, without a run folder.
#pragma once

#include <functional>

#include "daemon/config/flags.h"
#include "daemon/infer/trained_model.h"
#include "daemon/launch/session.h"
#include "daemon/train/rank_status.h"
#include "daemon/train/run.h"

namespace gaccd {

// What all ranks do together. The model is still empty, and lives as long as the session.
using RanksWork = std::function<RankStatus(Session& session, TrainedModel& trained)>;

// Finds the other ranks as a training does, does the work and leaves together with them.
RanksOutcome RunOnRanks(const Flags& flags, const ErrorPrinter& print, const RanksWork& work);

}  // namespace gaccd
