// The verb `gaccd train`, and what others need of devices and libraries.
#pragma once

#include <functional>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/help.h"

namespace gaccd {

// Prints an error for people, on stderr. The message already names rank and host.
using ErrorPrinter = std::function<void(const Status&)>;

// How a verb ended that runs on all ranks.
struct RanksOutcome {
  Status status;         // for the exit code
  bool printed = false;  // or another rank has printed it
};

// An error on which all ranks agree is printed by one of them, any other by every rank that has it.
// In the second case the other ranks are ended (Communicator::Abort) and this does not return. One
// from before the ranks have met comes back unprinted, and nobody is ended.
RanksOutcome RunTrain(const Flags& flags, const ErrorPrinter& print);

// For `gaccd plan`, which sees no model: kConfig, naming them, when --device=cuda is wanted (or the
// job wants it) and the job's model has functions that GPUs cannot compute.
Status CheckPlannedDevice(const Flags& flags);

// The libraries that only later stages know, loaded and compiled with: MPI, oneDNN, CUDA's, NCCL.
std::vector<Version> LoadedLibraries();

}  // namespace gaccd
