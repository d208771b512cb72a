#include "daemon/engine/update_program.h"

#include <algorithm>
#include <span>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

UpdateProgram Empty(const Plan& plan) {
  return {.samples = plan.effective_batch(),
          .micro_batches = plan.accum_steps(),
          .resumable = !plan.any_split()};
}

void AddForEachMicroBatch(UpdateProgram* program, InstructionKind kind, std::int64_t segment = 0) {
  for (std::int64_t i = 0; i < program->micro_batches; ++i) {
    program->instructions.push_back({kind, i, segment});
  }
}

void AddEnding(UpdateProgram* program) {
  program->computed = std::ssize(program->instructions);
  for (const InstructionKind kind :
       {InstructionKind::kReduce, InstructionKind::kMeasure, InstructionKind::kAudit,
        InstructionKind::kStep, InstructionKind::kEnd}) {
    program->instructions.push_back({kind});
  }
}

bool EndsPass(const Instruction& instruction) {
  return instruction.kind == InstructionKind::kContrast ||
         instruction.kind == InstructionKind::kUpdateSum;
}

}  // namespace

std::string DescribePosition(const UpdateProgram& program, std::int64_t position) {
  if (program.resumable) return StrCat("after micro-step ", position);
  const std::span all =
      std::span(program.instructions).first(static_cast<std::size_t>(program.computed));
  const std::span before = all.first(static_cast<std::size_t>(position) - 1);
  const Instruction& last = all[before.size()];
  const auto pass = 1 + std::ranges::count_if(before, EndsPass);
  const std::string of_passes = StrCat(pass, " of ", 1 + std::ranges::count_if(all, EndsPass));
  if (EndsPass(last)) return StrCat("after pass ", of_passes);
  return StrCat("after micro-step ", last.micro_batch + 1, " of ", program.micro_batches,
                " in pass ", of_passes);
}

UpdateProgram PlainAccumulation(const Plan& plan) {
  UpdateProgram program = Empty(plan);
  AddForEachMicroBatch(&program, InstructionKind::kMicroStep);
  AddEnding(&program);
  return program;
}

UpdateProgram TwoPassContrastive(const Plan& plan) {
  UpdateProgram program = Empty(plan);
  program.resumable = false;
  program.passes = 2;
  AddForEachMicroBatch(&program, InstructionKind::kEncode);
  program.instructions.push_back({InstructionKind::kContrast});
  AddForEachMicroBatch(&program, InstructionKind::kMicroStep);
  AddEnding(&program);
  return program;
}

UpdateProgram SegmentBySegment(const Plan& plan, std::int64_t update_sums) {
  UpdateProgram program = Empty(plan);
  program.resumable = false;
  for (std::int64_t segment = 0; segment <= update_sums; ++segment) {
    AddForEachMicroBatch(&program, InstructionKind::kSegment, segment);
    if (segment < update_sums) {
      program.instructions.push_back({InstructionKind::kUpdateSum, 0, segment});
    }
  }
  AddEnding(&program);
  return program;
}

UpdateProgram PipelineStageProgram(const Plan& plan, PipelineSchedule schedule, std::int64_t stages,
                                   std::int64_t stage) {
  UpdateProgram program = Empty(plan);
  program.resumable = false;
  program.interruptible = false;
  for (const PipelineAction& action :
       PipelineActions(schedule, stages, stage, program.micro_batches)) {
    program.instructions.push_back(
        {InstructionKind::kStage, action.micro_batch, static_cast<std::int64_t>(action.kind)});
  }
  AddEnding(&program);
  return program;
}

ProgramGenerator SelectProgramGenerator(LossKind loss, std::int64_t update_sums) {
  if (update_sums > 0) {
    return [update_sums](const Plan& plan) { return SegmentBySegment(plan, update_sums); };
  }
  return loss == LossKind::kContrastive ? TwoPassContrastive : PlainAccumulation;
}

}  // namespace gaccd
