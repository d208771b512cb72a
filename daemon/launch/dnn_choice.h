// Whether a library computes attention and convolutions of a job on GPUs. The same on all ranks:
// else some would wait for the others.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/device/cuda/dnn_library.h"

namespace gaccd {

// What a job's model has of that.
struct DnnWork {
  bool attention = false, convolution = false;
};

struct DnnChoice {
  DnnOpener library = nullptr;  // null: gaccd's own kernels
  std::string text;             // for people, with the reason; empty: the job has no such work
  bool slow = false;            // the text is a warning: cuDNN would do it, but cannot
};

// Needs no data. Errors: the model is wrong.
Result<DnnWork> FindDnnWork(const Job& job);

// Collective. bf16, fp16: cuDNN if every rank finds it, else gaccd's own kernels, which are slower,
// on all. f32: gaccd's own kernels. `mine`: FindDnnLibrary(). REQUIRES: some work.
Result<DnnChoice> ChooseDnn(Communicator& over, const DnnWork& work, Precision precision,
                            const Result<DnnOpener>& mine);

}  // namespace gaccd
