// The job as plain, validated values. Made from job text and flags by job_text.h. Its structs are
// generated from proto/job.proto by make_structs.cc, with meaning, range and default of every
// field, in <build>/daemon/config/job_spec.h.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/config/job_spec.h"

namespace gaccd {

struct Job : JobSpec {
  std::string folder;  // folder of the job file, for relative paths; empty: none

  // Which of these fields are set in the job text; the others have their defaults.
  struct Given {
    bool micro = false;
    bool rounding = false;
    bool lr_rule = false;
  } given = {};
};

enum class LossKind : std::uint8_t {
  kSoftmaxCrossEntropy,
  kMeanSquaredError,
  kContrastive,
  kOutput
};
[[nodiscard]] LossKind GetLossKind(const LossSpec& loss);
[[nodiscard]] std::string_view Name(LossKind loss);  // as in a job

// The numerical precision of all ranks.
struct Numerics {
  Precision precision = Precision::kF32;
  bool tf32 = false;
  bool deterministic = false;
};
[[nodiscard]] Numerics GetNumerics(const JobSpec& job);

}  // namespace gaccd
