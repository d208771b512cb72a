#include "daemon/train/pipeline.h"

#include "daemon/plan/pipeline_schedule.h"

namespace gaccd {

Result<std::vector<std::int64_t>> AssignBlocks(const Job& job, const Model& model) {
  if (!job.pipeline.blocks.empty()) return job.pipeline.blocks;
  GACCD_ASSIGN_OR_RETURN(const std::vector<double> flops, model.BlockFlops());
  GACCD_ASSIGN_OR_RETURN(const std::int64_t least_first, model.LeastFirstBlocks());
  return BalanceStages(flops, job.pipeline.stages, least_first);
}

Status MakeStage(const Job& job, std::int64_t rank, Model* model) {
  const std::int64_t stages = job.pipeline.stages;
  if (stages == 1) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(std::vector<std::int64_t> blocks, AssignBlocks(job, *model));
  const std::int64_t stage = rank % stages;
  return model->SetStage(std::move(blocks), static_cast<std::size_t>(stage),
                         DividesBackward(job.pipeline.schedule, stage));
}

ProgramGenerator SelectProgramGenerator(const Job& job, const Model& model) {
  const auto& stage = model.stage();
  if (!stage) return SelectProgramGenerator(GetLossKind(job.model.loss), model.update_sums());
  return [schedule = job.pipeline.schedule, stages = job.pipeline.stages,
          own = static_cast<std::int64_t>(stage->stage)](const Plan& plan) {
    return PipelineStageProgram(plan, schedule, stages, own);
  };
}

std::int64_t MaxInFlight(const Job& job, const Model& model, std::int64_t micro_steps) {
  const auto& stage = model.stage();
  if (!stage) return 1;
  return InFlight(job.pipeline.schedule, job.pipeline.stages,
                  static_cast<std::int64_t>(stage->stage), micro_steps);
}

}  // namespace gaccd
