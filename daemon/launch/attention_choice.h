// What computes the attention of a job on GPUs. The same on all ranks: else some would wait for the
// others.
#pragma once

#include <span>
#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/device/cuda/sdpa.h"

namespace gaccd {

struct AttentionChoice {
  SdpaOpener library = nullptr;  // null: gaccd's own kernel
  std::string text;              // for people, with the reason; empty: the job has no attention
  bool slow = false;             // the text is a warning: cuDNN would do it, but cannot
};

// Whether the job's model has attention. Needs no data. Errors: the model is wrong.
Result<bool> HasAttention(const Job& job);

// Collective. bf16, fp16: cuDNN if every rank finds it, else gaccd's own kernel, which is slower,
// on all. f32: gaccd's own kernel. `mine`: FindAttentionLibrary().
Result<AttentionChoice> ChooseAttention(Communicator& over, Precision precision,
                                        const Result<SdpaOpener>& mine);

}  // namespace gaccd
