// Trains a job as `gaccd train` does, with ranks that are threads: rank_process golden JOB NODES
// RANKS OUT or with initial weights: rank_process golden JOB NODES RANKS OUT WEIGHTS RANKS are
// those of a node. Writes OUT/attempts/*/events.jsonl and OUT/weights.
#include <cstdio>
#include <cstdlib>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/config/job_text.h"
#include "daemon/train/trainer.h"
#include "daemon/train/weight_source.h"
#include "daemon/weights/weights.h"
#include "tests/ranks/rank_process.h"

namespace gaccd {
namespace {

struct Files {
  std::string out;
  std::string init_weights;  // empty: the job's own
};

Status Train(Communicator& comm, const Job& job, const Plan& plan, const Files& files) {
  GACCD_ASSIGN_OR_RETURN(TrainingData data, OpenTrainingData(job, {}));
  GACCD_ASSIGN_OR_RETURN(auto inputs, TrainingInputs::Make(comm, job, plan, std::move(data)));
  GACCD_ASSIGN_OR_RETURN(const auto trainer, Trainer::Make(comm, std::move(inputs)));
  if (!files.init_weights.empty()) {
    LoadedWeights loaded;
    GACCD_RETURN_IF_ERROR(LoadWeightsTogether(comm, trainer->engine(), trainer->model(), job,
                                              {.path = files.init_weights}, &loaded)
                              .status);
  }
  GACCD_ASSIGN_OR_RETURN(const auto reporter,
                         RunReporter::Start(comm, {.run_dir = files.out, .quiet = true}));
  TrainingSummary summary;
  const Status status = trainer->Run(*reporter, &summary);
  reporter->Finish(status);
  GACCD_RETURN_IF_ERROR(status);
  GACCD_ASSIGN_OR_RETURN(const std::vector<float> parameters, trainer->FinalParameters());
  if (comm.rank() != 0) return Status::Ok();
  return SaveParameters(StrCat(files.out, "/weights"), trainer->model().layout(), parameters);
}

Status Run(const std::string& path, int nodes, int ranks_per_node, const Files& files) {
  GACCD_ASSIGN_OR_RETURN(const Job job, LoadJob(path));
  GACCD_ASSIGN_OR_RETURN(PlanRequest request, ToPlanRequest(job.batch, nodes, ranks_per_node));
  request.stages = job.pipeline.stages;
  GACCD_ASSIGN_OR_RETURN(const Plan plan, Plan::Make(request));
  return RunThreadRanks(nodes * ranks_per_node, {.comm = {}, .ranks_per_node = ranks_per_node},
                        [&](Communicator& comm) { return Train(comm, job, plan, files); });
}

}  // namespace
}  // namespace gaccd

int gaccd::tests::GoldenRanks(int argc, char** argv) {
  if (argc != 5 && argc != 6) return 64;
  const gaccd::Status status = gaccd::Run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]),
                                          {argv[4], argc > 5 ? argv[5] : ""});
  if (status.ok()) return 0;
  std::fprintf(stderr, "rank_process golden: %s\n", status.message().c_str());
  return static_cast<int>(status.kind());
}
