// UpdateProgram: the instructions of one update. It depends only on the plan, so that every rank
// issues the same collectives in the same order, even without samples. Immutable.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/config/job.h"
#include "daemon/plan/pipeline_schedule.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// daemon/engine/engine.h defines each one at the function that executes it.
enum class InstructionKind : std::uint8_t {
  kEncode,     // one micro-batch: forward
  kContrast,   // collective
  kMicroStep,  // one micro-batch: forward, backward, accumulate
  kSegment,    // one micro-batch: a part of its micro-step
  kUpdateSum,  // collective
  kStage,      // one micro-batch: a part of its micro-step, with the messages of a pipeline
  kReduce,     // collective
  kMeasure,
  kAudit,  // collective if the counts are wrong
  kStep,
  kEnd,
};

struct Instruction {
  InstructionKind kind = InstructionKind::kMicroStep;
  std::int64_t micro_batch = 0;  // for instructions on one micro-batch
  // kSegment: its number. kUpdateSum: the segment before it. kStage: 0 forward, 1 backward, 2 the
  // deferred part of the backward (PipelineAction::Kind).
  std::int64_t segment = 0;
  bool operator==(const Instruction&) const = default;
};

// A position is the number of executed instructions.
struct UpdateProgram {
  std::vector<Instruction> instructions;
  std::int64_t samples = 0;        // over all ranks: what the audit expects
  std::int64_t micro_batches = 0;  // of this update, on every rank; some may be empty
  // An update may be interrupted at positions 1 to computed - 1. At `computed`, everything that is
  // to be reduced has been computed.
  std::int64_t computed = 0;
  // true: an interrupted update resumes from its position and live buffers; false: it restarts.
  bool resumable = true;
  // false: it cannot be interrupted, as the ranks are at different positions
  bool interruptible = true;
  int passes = 1;  // how often its micro-batches are read

  [[nodiscard]] bool is_first(const Instruction& instruction) const {
    return instruction.micro_batch == 0;
  }
  [[nodiscard]] bool is_last(const Instruction& instruction) const {
    return instruction.micro_batch + 1 == micro_batches;
  }
};

// Text for users of a position inside an update: "after micro-step 2". If the program does not
// continue: "after micro-step 2 of 18 in pass 3 of 7", where a pass covers all micro-batches
// between two collectives, or "after pass 3 of 7". REQUIRES: 1 <= position <= computed.
[[nodiscard]] std::string DescribePosition(const UpdateProgram& program, std::int64_t position);

// One micro-step per micro-batch. The live buffers inside it are the accumulators, the sample count
// and the sum of losses (PartialUpdate). With Bits::kAnySplit it restarts if interrupted: exact
// accumulators are not saved.
[[nodiscard]] UpdateProgram PlainAccumulation(const Plan& plan);

// For losses that compare every sample with all others: encodes all micro-batches, computes the
// loss over the samples of all ranks and the gradient of each representation, then runs the
// micro-steps. If interrupted it restarts: representations are not saved.
[[nodiscard]] UpdateProgram TwoPassContrastive(const Plan& plan);

// For models with `update_sums` sums over the update, for example batch norm statistics: all
// micro-batches run a segment of the graph, the ranks add a sum, and so on for the next segment. If
// interrupted it restarts: activations are not saved.
[[nodiscard]] UpdateProgram SegmentBySegment(const Plan& plan, std::int64_t update_sums);

// For one pipeline stage: its forwards and backwards in the order of the schedule. The lists of the
// stages differ before the reduction, so the update cannot be interrupted.
[[nodiscard]] UpdateProgram PipelineStageProgram(const Plan& plan, PipelineSchedule schedule,
                                                 std::int64_t stages, std::int64_t stage);

using ProgramGenerator = std::function<UpdateProgram(const Plan& plan)>;
// The generator for a job with this loss and a model with `update_sums` sums over the update.
[[nodiscard]] ProgramGenerator SelectProgramGenerator(LossKind loss, std::int64_t update_sums);

}  // namespace gaccd
