#include "daemon/infer/run_on_ranks.h"

#include <chrono>
#include <utility>

#include "daemon/train/launch.h"
#include "daemon/train/nccl_environment.h"

namespace gaccd {

RanksOutcome RunOnRanks(const Flags& flags, const ErrorPrinter& print, const RanksWork& work) {
  auto job = ReadInferenceJob(flags);
  SetNcclEnvironment(flags, job.ok() && job->deterministic);
  auto ranks = JoinRanks(flags, ProcessEnvironment());
  if (!ranks.ok()) return {std::move(ranks).status()};
  Session session{.slurm = ranks->slurm,
                  .comm = *ranks->comm,
                  .signals = nullptr,
                  .between_gpus = {},
                  .device = {},
                  .setup = {},
                  .peers = {}};
  auto peers = PeerWatch::Start(session.comm, ranks->interrupt,
                                std::chrono::seconds(flags.heartbeat_seconds));
  if (!peers.ok()) return {std::move(peers).status()};
  session.peers = *std::move(peers);
  TrainedModel trained;
  trained.job_status = job.status();
  if (job.ok()) trained.job = *std::move(job);
  return ExitRank(work(session, trained), session, print);
}

}  // namespace gaccd
