// The job as the daemon sees it: plain values, already checked. Made from job text and flags by
// job_text.h. Its structs are made from proto/job.proto, where the meaning, the range and the
// default of every field are in <build>/daemon/config/job_spec.h, by make_structs.cc.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/config/job_spec.h"

namespace gaccd {

struct Job : JobSpec {
  std::string folder;  // of the job file, for relative paths; empty: none

  // Which of these the job text gives; the others have their default.
  struct Given {
    bool micro = false;
    bool rounding = false;
    bool lr_rule = false;
  } given = {};
};

enum class LossKind : std::uint8_t { kSoftmaxCrossEntropy, kMeanSquaredError, kContrastive };
[[nodiscard]] LossKind KindOf(const LossSpec& loss);

// How exactly the ranks compute.
struct Numerics {
  Precision precision = Precision::kF32;
  bool tf32 = false;
  bool deterministic = false;
};
[[nodiscard]] Numerics NumericsOf(const JobSpec& job);

}  // namespace gaccd
