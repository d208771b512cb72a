// StepProgram: what one update does, as a list of instructions. A function of the plan alone, so
// that every rank has the same collectives in the same order, also where it has no samples.
// Immutable once made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/config/job.h"
#include "daemon/plan/pipeline_schedule.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// engine/engine.h defines each at the function that executes it.
enum class InstructionKind : std::uint8_t {
  kEncode,     // of one micro-batch: forward
  kContrast,   // collective
  kMicroStep,  // of one micro-batch: forward, backward, accumulate
  kSegment,    // of one micro-batch: a part of its micro-step
  kUpdateSum,  // collective
  kStage,      // of one micro-batch: a part of its micro-step, with the messages of a pipeline
  kReduce,     // collective
  kMeasure,
  kAudit,  // collective where the counts are wrong
  kStep,
  kEnd,
};

struct Instruction {
  InstructionKind kind = InstructionKind::kMicroStep;
  std::int64_t micro_batch = 0;  // of those that have one
  // Of kSegment; of kUpdateSum: the one before it; of kStage: 0 for the forward, 1 for the
  // backward, 2 for the part of it that comes later (PipelineAction::Kind).
  std::int64_t segment = 0;
  bool operator==(const Instruction&) const = default;
};

// A position is the number of instructions that are done.
struct StepProgram {
  std::vector<Instruction> instructions;
  std::int64_t samples = 0;        // of all ranks: what the audit expects
  std::int64_t micro_batches = 0;  // of this update, on every rank; some may be empty
  // The update may be left after every position from 1 to before this one, where all that is to be
  // reduced is computed.
  std::int64_t computed = 0;
  // Where it is left, position and live buffers continue later; else the update begins again.
  bool continues = true;
  bool can_be_left = true;  // false: not inside, the ranks are at different positions
  int passes = 1;           // so often its micro-batches are read

  [[nodiscard]] bool is_first(const Instruction& instruction) const {
    return instruction.micro_batch == 0;
  }
  [[nodiscard]] bool is_last(const Instruction& instruction) const {
    return instruction.micro_batch + 1 == micro_batches;
  }
};

// Where an update is after so many instructions, for people: "after micro-step 2". Of a program
// that does not continue: "after micro-step 2 of 18 in pass 3 of 7", a pass being what all
// micro-batches go through between two collectives, or "after pass 3 of 7". REQUIRES: 1 <= position
// <= computed.
[[nodiscard]] std::string DescribePosition(const StepProgram& program, std::int64_t position);

// A micro-step for each micro-batch. Inside it the live buffers are the accumulators, the count of
// samples and the sum of losses (WindowShare).
[[nodiscard]] StepProgram PlainAccumulation(const Plan& plan);

// For losses that compare every sample with all others: all micro-batches are encoded, the loss of
// all samples of all ranks gives the gradient of each representation, and the micro-steps go from
// there. Left inside, it begins again: the representations are not saved.
[[nodiscard]] StepProgram TwoPassContrastive(const Plan& plan);

// For models with so many sums over the update, as the statistics of batch norms: all micro-batches
// pass a segment of the graph, then the ranks add a sum, then all pass the next segment. Left
// inside, it begins again: activations are not saved.
[[nodiscard]] StepProgram SegmentBySegment(const Plan& plan, std::int64_t update_sums);

// For one stage of a pipeline: its forwards and backwards in the order of the schedule. The lists
// of the stages differ up to the reduction, so the update is not left inside.
[[nodiscard]] StepProgram StageOfPipeline(const Plan& plan, PipelineSchedule schedule,
                                          std::int64_t stages, std::int64_t stage);

using ProgramGenerator = std::function<StepProgram(const Plan& plan)>;
// That of a job with this loss, and a model with so many sums over the update.
[[nodiscard]] ProgramGenerator GeneratorOf(LossKind loss, std::int64_t update_sums);

}  // namespace gaccd
