#include "daemon/infer/run_on_ranks.h"

#include <utility>

#include "daemon/launch/nccl_environment.h"

namespace gaccd {

VerbOutcome RunOnRanks(const Flags& flags, const ErrorPrinter& print, const RanksWork& work) {
  auto job = ReadInferenceJob(flags);
  SetNcclEnvironment(flags, job.ok() && job->deterministic);
  auto session = Session::Join(flags);
  if (!session.ok()) return {session.status()};
  TrainedModel trained;
  trained.job_status = job.status();
  if (job.ok()) trained.job = *std::move(job);
  return ExitRank(work(*session, trained), *session, print);
}

}  // namespace gaccd
