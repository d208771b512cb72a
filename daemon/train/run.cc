#include "daemon/train/run.h"

#include <memory>
#include <utility>

#include "daemon/launch/launch.h"
#include "daemon/launch/rank_status.h"
#include "daemon/launch/session.h"
#include "daemon/rundir/verdict_guard.h"
#include "daemon/stop/stop_requests.h"
#include "daemon/train/run_options.h"
#include "daemon/train/training_run.h"

namespace gaccd {

VerbOutcome RunTrain(const Flags& flags, const ErrorPrinter& print) {
  auto job = ReadTrainingJob(flags);
  SetNcclEnvironment(flags, job.ok() && job->deterministic);
  std::unique_ptr<VerdictGuard> guard;
  if (flags.run_dir) guard = VerdictGuard::Start(ProcessEnvironment());
  // Early, so that a signal during the start is not lost.
  const auto stop_signals = ParseSignals(flags.stop_signals);
  if (!stop_signals.ok()) return {stop_signals.status()};
  auto signals = StopSignals::Install(*stop_signals);
  if (!signals.ok()) return {signals.status()};
  auto session = Session::Join(flags);
  if (!session.ok()) return {session.status()};
  TrainingRun run(flags, *session, guard.get(), signals->get());
  return ExitRank(run.Run(std::move(job)), *session, print);
}

}  // namespace gaccd
