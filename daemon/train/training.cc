#include "daemon/train/training.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/data/sample_order.h"
#include "daemon/train/pipeline.h"
#include "daemon/train/training_checks.h"

namespace gaccd {
namespace {

// kData if no sample has a label that counts.
Result<LabelCounts> CheckLabels(const Dataset& data, std::string_view name) {
  const LabelCounts counts = CountLabels(data);
  if (counts.unlabelled < data.size()) return counts;
  return Status(ErrorKind::kData,
                StrCat("the ", name, " has no label that counts: expected one that is not ",
                       data.spec().ignored_label, ", with a weight above 0, found none in ",
                       data.size(), " samples"));
}

}  // namespace

Result<TrainingInputs> TrainingInputs::Make(Communicator& comm, const Job& job, const Plan& plan,
                                            TrainingData data) {
  GACCD_ASSIGN_OR_RETURN(Model model, Model::Make(job.model, MakeBatchSpec(job, *data.train)));
  model.SetDropoutSeed(job.seed);
  GACCD_RETURN_IF_ERROR(model.ApplyRules(job.optimizer));
  GACCD_RETURN_IF_ERROR(MakeStage(job, comm.rank(), &model));
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule,
                         MakeUpdateSchedule(job, plan, data.train->size()));
  GACCD_RETURN_IF_ERROR(CheckTraining(job, model, plan, schedule, data.eval.get()));
  Better better = Better::kSmaller;
  if (data.eval != nullptr) {
    GACCD_ASSIGN_OR_RETURN(better, FindBetter(job, data.eval->spec()));
  }
  GACCD_ASSIGN_OR_RETURN(const LabelCounts labels, CheckLabels(*data.train, "training data"));
  LabelCounts eval_labels;
  if (data.eval != nullptr) {
    GACCD_ASSIGN_OR_RETURN(eval_labels, CheckLabels(*data.eval, "evaluation data"));
  }
  const SampleOrder order(job.seed, data.train->size(), job.data.shuffle);
  GACCD_ASSIGN_OR_RETURN(BatchFeed feed,
                         BatchFeed::Make(*data.train, order, schedule, plan, comm.rank(),
                                         SelectProgramGenerator(job, model)));
  feed.GroupByLength(model.sample().cuts);
  TrainingInputs inputs{.job = job,
                        .plan = plan,
                        .data = std::move(data),
                        .model = std::move(model),
                        .schedule = schedule,
                        .feed = std::move(feed),
                        .better = better,
                        .labels = labels,
                        .eval_labels = eval_labels};
  if (inputs.data.eval == nullptr) return inputs;
  Evaluator& evaluator =
      inputs.evaluator.emplace(comm, *inputs.data.eval, plan.request().micro_batch,
                               inputs.model.divisor_unit(inputs.data.eval_weighted),
                               SelectMetrics(job, inputs.data.eval->spec()));
  evaluator.GroupByLength(inputs.model.sample().cuts);
  evaluator.SetStages(static_cast<int>(job.pipeline.stages));
  evaluator.SetAnySplit(plan.any_split());
  return inputs;
}

double TrainingInputs::checkpoint_bytes() const {
  const FlatLayout& layout = model.layout();
  const std::int64_t state = StateElements(job.optimizer, layout.trainable_size());
  return static_cast<double>(layout.size() + state) * sizeof(float);
}

}  // namespace gaccd
