// Trains a job as `gaccd train` does, with ranks that are threads: golden_ranks JOB NODES RANKS OUT
// RANKS are those of a node. Writes OUT/attempts/*/events.jsonl and OUT/weights.
#include <cstdio>
#include <cstdlib>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/config/job_text.h"
#include "daemon/train/trainer.h"

namespace gaccd {
namespace {

Status Train(Communicator& comm, const Job& job, const Plan& plan, const std::string& out) {
  GACCD_ASSIGN_OR_RETURN(const auto trainer, Trainer::Open(comm, job, plan));
  GACCD_RETURN_IF_ERROR(trainer->Prepare());
  GACCD_ASSIGN_OR_RETURN(const auto reporter,
                         RunReporter::Start(comm, {.run_dir = out, .quiet = true}));
  TrainingSummary summary;
  const Status status = trainer->Run(*reporter, &summary);
  reporter->Finish(status);
  if (!status.ok() || comm.rank() != 0) return status;
  return trainer->SaveWeights(StrCat(out, "/weights"), 0600);
}

Status Run(const std::string& path, int nodes, int ranks_per_node, const std::string& out) {
  GACCD_ASSIGN_OR_RETURN(const Job job, LoadJob(path));
  GACCD_ASSIGN_OR_RETURN(const PlanRequest request,
                         ToPlanRequest(job.batch, nodes, ranks_per_node));
  GACCD_ASSIGN_OR_RETURN(const Plan plan, Plan::Make(request));
  return RunThreadRanks(nodes * ranks_per_node, {.comm = {}, .ranks_per_node = ranks_per_node},
                        [&](Communicator& comm) { return Train(comm, job, plan, out); });
}

}  // namespace
}  // namespace gaccd

int main(int argc, char** argv) {
  if (argc != 5) return 64;
  const gaccd::Status status = gaccd::Run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), argv[4]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "golden_ranks: %s\n", status.message().c_str());
  return static_cast<int>(status.kind());
}
