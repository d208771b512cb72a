#include "daemon/train/update.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/optim/schedule.h"

namespace gaccd {

namespace {

// Reports a loading phase while waiting, so that a rank that waits for a disk is not considered
// stuck.
const BatchView* WaitForBatch(Prefetcher& batches, std::int64_t position,
                              const UpdateHooks& hooks) {
  if (batches.ready() || !hooks.on_progress) return batches.Next();
  hooks.on_progress(heartbeat::Phase::kLoad, position);
  const BatchView* const batch = batches.Next();
  hooks.on_progress(heartbeat::Phase::kCompute, position);
  return batch;
}

// The next micro-batch of this rank, or an empty one if it is dropped.
Result<BatchView> NextBatch(Prefetcher& batches, const UpdateProgram& program,
                            std::int64_t position, const Instruction& instruction,
                            const UpdateHooks& hooks) {
  const BatchView* const batch = WaitForBatch(batches, position, hooks);
  if (batch == nullptr) {
    return Status(ErrorKind::kInternal,
                  StrCat("no micro-batch for micro-step ", instruction.micro_batch + 1, " of ",
                         program.micro_batches));
  }
  GACCD_RETURN_IF_ERROR(batches.status());
  return hooks.is_dropped && hooks.is_dropped(instruction.micro_batch) ? BatchView{} : *batch;
}

// Executes the instruction at `position` of the program.
Status RunInstruction(Engine& engine, Prefetcher& batches, const UpdateProgram& program,
                      std::int64_t position, const UpdateHooks& hooks) {
  const Instruction& instruction = program.instructions[static_cast<std::size_t>(position)];
  const auto next = [&] { return NextBatch(batches, program, position, instruction, hooks); };
  const auto next_of_first_segment = [&] {
    return instruction.segment == 0 ? next() : Result<BatchView>(BatchView{});
  };
  switch (instruction.kind) {
    // 0. Losses that compare samples: the representations of all micro-batches, and their
    //    gradients from those of all ranks. Not used by other losses.
    case InstructionKind::kEncode: {
      GACCD_ASSIGN_OR_RETURN(const BatchView batch, next());
      return engine.Encode(batch);
    }
    case InstructionKind::kContrast:
      return engine.ComputeContrastiveLoss();
    // 1. Forward, backward, accumulate. No communication. Every sample weighs 1/D, D being the
    //   count of the whole update, so that ragged micro-batches and ranks need no correction.
    case InstructionKind::kMicroStep: {
      if (position < hooks.resume_at) {
        (void)WaitForBatch(batches, position, hooks);
        return Status::Ok();
      }
      GACCD_ASSIGN_OR_RETURN(const BatchView batch, next());
      return engine.MicroStep(
          batch, {.first = program.is_first(instruction), .last = program.is_last(instruction)});
    }
    // 1b. The same in segments, with statistics of the whole update between them.
    case InstructionKind::kSegment: {
      GACCD_ASSIGN_OR_RETURN(const BatchView batch, next_of_first_segment());
      return engine.RunSegment(batch, instruction.micro_batch, instruction.segment);
    }
    // 1c. The same in a pipeline stage: forward or backward, with the neighbours' messages.
    case InstructionKind::kStage: {
      GACCD_ASSIGN_OR_RETURN(const BatchView batch, next_of_first_segment());
      return engine.RunStage(batch, instruction.micro_batch, instruction.segment);
    }
    case InstructionKind::kUpdateSum:
      // waits for other ranks
      if (hooks.on_progress) hooks.on_progress(heartbeat::Phase::kReduce, position);
      return engine.SumOverUpdate();
    // 2. Reduce once: gradients are sums, so the reduction is a plain sum.
    case InstructionKind::kReduce:
      if (hooks.on_progress) hooks.on_progress(heartbeat::Phase::kReduce, position);
      if (hooks.before_reduce) hooks.before_reduce();
      return engine.Reduce();
    // 3. Check finite.  4. Global norm in the same pass, without the loss scale of fp16.
    case InstructionKind::kMeasure:
      return engine.MeasureGradient();
    // 5. The samples counted by all ranks must equal the plan; otherwise nothing changes any
    // more.
    case InstructionKind::kAudit:
      return engine.Audit();
    // 6. Clip once, after the reduction.  7. Optimiser step.
    case InstructionKind::kStep:
      return engine.Optimize();
    // 8. Reset accumulators: the first micro-step of the next update overwrites them.
    case InstructionKind::kEnd:
      return engine.End();
  }
  return Status::Ok();
}

}  // namespace

Status RunUpdate(Engine& engine, Prefetcher& batches, const UpdateProgram& program,
                 UpdateSettings settings, const UpdateHooks& hooks) {
  if (settings.samples == 0) settings.samples = program.samples;
  GACCD_RETURN_IF_ERROR(engine.Begin(settings));
  if (hooks.resume_at > 0) GACCD_RETURN_IF_ERROR(hooks.restore_accumulators());
  for (std::int64_t position = 0; position < std::ssize(program.instructions); ++position) {
    if (hooks.on_progress && position < program.computed) {
      hooks.on_progress(heartbeat::Phase::kCompute, position);
    }
    GACCD_RETURN_IF_ERROR(RunInstruction(engine, batches, program, position, hooks));
    const std::int64_t done = position + 1;
    if (hooks.should_stop && program.interruptible && done < program.computed &&
        done > hooks.resume_at) {
      GACCD_ASSIGN_OR_RETURN(const bool stop, hooks.should_stop(done));
      if (stop) return Status::Ok();
    }
  }
  return Status::Ok();
}

double JobLearningRate(const Job& job, const Plan& plan, const UpdateSchedule& schedule,
                       std::int64_t index) {
  const double factor = plan.LrFactor(schedule.StageAt(index).batch);
  if (schedule.stages().size() == 1) {
    return LearningRate(job.schedule, job.optimizer.lr, factor, index, schedule.updates());
  }
  const std::int64_t warmup = std::min(job.schedule.warmup_updates, schedule.updates() - 1);
  const auto samples = [&](std::int64_t update) {
    return static_cast<double>(schedule.SamplesBefore(update) - schedule.SamplesBefore(warmup));
  };
  const double all = samples(schedule.updates() - 1);
  return LearningRateAt(job.schedule, job.optimizer.lr, factor, index,
                        index > warmup && all > 0 ? samples(index) / all : 0);
}

}  // namespace gaccd
