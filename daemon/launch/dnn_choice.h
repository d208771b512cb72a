// Whether a library computes attention and convolutions of a job on GPUs. The same on all ranks, as
// otherwise the fast ranks would wait for the slow ones.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/device/cuda/dnn_library.h"

namespace gaccd {

// The operations of a job's model for which a library is used.
struct DnnWork {
  bool attention = false, convolution = false;
};

struct DnnChoice {
  DnnFactory library = nullptr;  // null: gaccd's own kernels
  std::string text;   // for users, with the reason; empty: the job has no such operations
  bool slow = false;  // the text is a warning: cuDNN would be faster but is not available
};

// Needs no data. Errors: the model is invalid.
Result<DnnWork> FindDnnWork(const Job& job);

// Collective. bf16, fp16: cuDNN if every rank has it, otherwise gaccd's own kernels, which are
// slower, on all ranks. f32: gaccd's own kernels. mine: FindDnnLibrary(). REQUIRES: the job has
// such operations.
Result<DnnChoice> ChooseDnn(Communicator& over, const DnnWork& work, Precision precision,
                            const Result<DnnFactory>& mine);

}  // namespace gaccd
