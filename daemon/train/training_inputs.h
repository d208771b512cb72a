// TrainingInputs: data, model, schedule and batches of one rank.
#pragma once

#include <optional>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/data/update_schedule.h"
#include "daemon/eval/best_evaluation.h"
#include "daemon/eval/evaluator.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"
#include "daemon/train/batch_feed.h"
#include "daemon/train/training.h"

namespace gaccd {

// The inputs of a training on one rank, before the device is selected.
struct TrainingInputs {
  // Checks the model and the schedule with the opened data. Local: a rank may fail alone, so the
  // caller must let all ranks agree on the result before the collective Trainer::Make(). REQUIRES:
  // plan.world() == comm.size(). `comm` must outlive the inputs.
  static Result<TrainingInputs> Make(Communicator& comm, const Job& job, const Plan& plan,
                                     TrainingData data);

  // Bytes of one checkpoint over all ranks.
  [[nodiscard]] double checkpoint_bytes() const;

  Job job;
  Plan plan;
  TrainingData data;
  Model model;
  UpdateSchedule schedule;
  BatchFeed feed;
  std::optional<Evaluator> evaluator;  // set if there is evaluation data
  Better better = Better::kSmaller;    // for values of evaluation.metric
  LabelCounts labels;  // of the training data. An update of unlabelled samples alone is skipped
  LabelCounts eval_labels;
};

}  // namespace gaccd
