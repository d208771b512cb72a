// Runs the verb of a command line: most in this process only, some on all ranks.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/verb.h"

namespace gaccd {

// Runs the verb, which prints its output. print: for the errors of verbs that run on all ranks.
// Other errors are returned unprinted.
VerbOutcome RunVerb(const Flags& flags, const ErrorPrinter& print);

// Verbs that are implemented here.

// `gaccd check`: the environment of every rank, and whether the ranks are compatible. Connects the
// ranks as for a training, gathers their reports, and lets rank 0 print them on stdout. kConfig on
// all ranks, with the offending ranks, if they are incompatible: rank 0 prints that. An earlier
// error is returned unprinted on every rank that has it.
VerbOutcome RunCheck(const Flags& flags, const ErrorPrinter& print);

// `gaccd data show`: writes one training image as the model sees it as a PNG, and prints the
// parameters of its random augmentation. kUsage without a job or the word show, or if there is no
// such sample or the training does not use it in this epoch; kConfig if data.train is not a source
// of images; errors of opening, reading and writing.
[[nodiscard]] Status RunDataCommand(const Flags& flags);

// `gaccd samples`: the samples of each rank in the micro-steps of each update, as TrainIndices
// provides them in a training. Prints update by update, so that a long run needs no memory. kUsage
// for a rank outside of the plan, an update beyond the run, or neither a data set size nor a job;
// errors of MakePlanOutput, UpdateSchedule::Make and, for the size of the job's data set,
// OpenTrainingData.
[[nodiscard]] Status RunSamplesCommand(const Flags& flags);

}  // namespace gaccd
