#include "daemon/infer/run_on_ranks.h"

#include <new>
#include <utility>

#include "collectives/base/process_memory.h"
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
  RankStatus ended;
  try {
    ended = work(*session, trained);
  } catch (const std::bad_alloc&) {  // of this rank alone, while the others wait for it
    ended = {NoMemory("the data, the model or their copies", 0), /*of_all=*/false};
  }
  return ExitRank(std::move(ended), *session, print);
}

}  // namespace gaccd
