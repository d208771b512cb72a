// A whole training on ranks that are threads.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/comm/threads.h"
#include "daemon/config/target_schedule.h"
#include "daemon/train/trainer.h"

namespace gaccd::tests {

struct Training {
  int ranks = 3;
  TrainGuards guards = {};
  std::string run_dir = {};  // of the events; empty: none
  BadRecordRules bad_records = {};
  // Between Trainer::Make() and Run().
  std::function<Status(int rank, Trainer&)> before = nullptr;
  std::vector<double> speeds = {};  // by rank
  LoadChanges loads = {};
  // Asked on this rank: EngineChoice::refuses_memory.
  int refused_rank = 0;
  std::function<bool(std::int64_t samples)> refuses_memory = nullptr;
  // In place of the job's data.
  std::function<std::unique_ptr<Dataset>(int rank)> data = nullptr;
};

// By rank.
struct Trained {
  explicit Trained(int ranks)
      : status(static_cast<std::size_t>(ranks)),
        summary(status.size()),
        weights(status.size()),
        memory(status.size()) {}

  std::vector<Status> status;
  std::vector<TrainingSummary> summary;
  std::vector<std::vector<float>> weights;  // FinalParameters()
  std::vector<MemoryUse> memory;
};

inline Result<Plan> MakePlan(const Job& job, int ranks, const std::vector<double>& speeds = {}) {
  return Plan::Make({.nodes = 1,
                     .gpus_per_node = ranks,
                     .micro_batch = job.batch.micro,
                     .target_batch = FirstTarget(job.batch).value(),
                     .rounding = job.batch.rounding,
                     .lr_rule = job.batch.lr_rule,
                     .reference_batch = job.batch.reference,
                     .speeds = speeds,
                     .recompute = job.batch.recompute.value_or(Recompute::kNone),
                     .stages = job.pipeline.stages,
                     .bits = job.batch.bits});
}

// With the job's data.
inline Result<TrainingInputs> OpenInputs(Communicator& comm, const Job& job, const Plan& plan) {
  GACCD_ASSIGN_OR_RETURN(TrainingData data, OpenTrainingData(job, {}));
  return TrainingInputs::Make(comm, job, plan, std::move(data));
}

inline Status TrainOnRank(Communicator& comm, const Job& job, const Training& training,
                          const EngineChoice& choice, Communicator* device_comm, Trained* trained) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  GACCD_ASSIGN_OR_RETURN(const Plan plan, MakePlan(job, comm.size(), training.speeds));
  GACCD_ASSIGN_OR_RETURN(TrainingData data, OpenTrainingData(job, training.bad_records));
  if (training.data) data.train = training.data(comm.rank());
  GACCD_ASSIGN_OR_RETURN(auto inputs, TrainingInputs::Make(comm, job, plan, std::move(data)));
  GACCD_ASSIGN_OR_RETURN(auto trainer,
                         Trainer::Make(comm, std::move(inputs),
                                       {training.guards, choice, device_comm, training.loads}));
  trained->memory[rank] = trainer->memory();
  if (training.before) GACCD_RETURN_IF_ERROR(training.before(comm.rank(), *trainer));
  GACCD_ASSIGN_OR_RETURN(auto reporter,
                         RunReporter::Start(comm, {.run_dir = training.run_dir, .quiet = true}));
  const Status status = trainer->Run(*reporter, &trained->summary[rank]);
  reporter->Finish(status);
  GACCD_ASSIGN_OR_RETURN(trained->weights[rank], trainer->FinalParameters());
  return status;
}

inline EngineChoice ChoiceForRank(const Training& training, int rank) {
  EngineChoice choice;
  if (rank == training.refused_rank) choice.refuses_memory = training.refuses_memory;
  return choice;
}

// On CPUs. Every rank has its own status, so this is for errors that all ranks find.
inline Trained Train(const Job& job, const Training& training) {
  Trained trained(training.ranks);
  const Status status = RunThreadRanks(training.ranks, {}, [&](Communicator& comm) {
    trained.status[static_cast<std::size_t>(comm.rank())] =
        TrainOnRank(comm, job, training, ChoiceForRank(training, comm.rank()), nullptr, &trained);
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return trained;
}

}  // namespace gaccd::tests
