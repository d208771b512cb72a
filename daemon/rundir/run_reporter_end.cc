// RunReporter: the end of a run: the verdict, the last STATUS.json, the crash record of this rank.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "collectives/base/time.h"
#include "daemon/rundir/run_folder.h"
#include "daemon/rundir/run_reporter_impl.h"
#include "daemon/rundir/verdict.h"

namespace gaccd {
namespace {

// The caller does not wait longer than ReporterOptions::end_limit.
constexpr std::chrono::hours kForTheDisk{1};
// PeerWatch kills a rank that has not exited 5 s after another one was lost.
constexpr std::chrono::milliseconds kAfterALoss{3'000};
// A file system that has not responded for this long gets only little more time, as mpirun kills
// all ranks a second after one has died.
constexpr std::chrono::milliseconds kHangs{2'000};
constexpr std::chrono::milliseconds kForAHang{200};
constexpr std::chrono::milliseconds kForTheTextLog{2'000};
constexpr std::chrono::milliseconds kForTheLastLines{100};

// The ranks that caused this rank to exit.
std::vector<int> LostRanks(const FailureFacts& facts) {
  if (facts.suspects.empty()) return facts.gave_up;
  std::vector<int> ranks;
  for (const Suspect& suspect : facts.suspects) ranks.push_back(suspect.rank);
  return ranks;
}

bool IsOnOneNode(const FailureFacts& facts) {
  const auto is_first = [&](const std::string& host) { return host == facts.hosts.front(); };
  return !facts.hosts.empty() && std::ranges::all_of(facts.hosts, is_first);
}

}  // namespace

void RunReporter::Impl::WriteFailure(const Status& outcome, const FailureFacts& facts) {
  if (attempt_dir.empty() || !IsFailure(outcome)) return;
  const Failure failure{.exit = static_cast<int>(outcome.kind()),
                        .signal = 0,
                        .step = steps_done(),
                        .phase = place.phase.load(),
                        .micro_step = place.micro_step.load(),
                        .collective = facts.collective,
                        .sequence = facts.sequence,
                        .message = outcome.message(),
                        .lost_ranks = LostRanks(facts)};
  const auto there =
      CreateFileOnce(CrashPath(attempt_dir, identity.rank),
                     EventJson(identity, {Timestamp(), 1, "error"}, failure) + "\n", modes.file);
  if (!there.ok()) LogInfo(there.status().message());  // the folder is not visible on this node
}

Verdict RunReporter::Impl::MakeRunVerdict(const Status& outcome, const FailureFacts& facts,
                                          double dur_s) const {
  Verdict verdict = MakeVerdict(outcome, facts, attempt_dir);
  verdict.last_step = steps_done();
  verdict.samples_total = samples_done();
  verdict.dur_s = dur_s;
  if (outcome.ok()) verdict.reason = ended_early;
  return verdict;
}

void RunReporter::Impl::WriteVerdict(const Verdict& verdict) {
  // First, as log lines may fill the disk again. An existing verdict was written by another rank
  // that considered this one lost.
  final_write = folder->owner().CheckInPlace();
  if (final_write.ok()) {
    final_write = WriteVerdictOnce(attempt_dir, identity, verdict, modes.file).status();
  }
  WriteEvent(verdict);
  events->Sync(kForTheDisk);
  status->Update([&](RunStatus& now) {
    Apply(verdict, now);
    now.write_errors = final_write.ok() ? 0 : 1;
  });
  const Status closed = status->Finish();
  if (final_write.ok()) final_write = closed;
}

// Rank 0 is lost: another rank writes the verdict. Or this rank is the disconnected one, and both
// report each other at about the same time (1.6 s apart were observed on a busy machine); then rank
// 0, which sees all others, has priority.
void RunReporter::Impl::CloseForRankZero(const Status& outcome, FailureFacts facts, double dur_s) {
  constexpr std::chrono::milliseconds kAfterRankZero{350};
  // There is no such rank without a network, and Open MPI 5's mpirun kills all ranks half a second
  // after one has died. It is the time in which the others write their records.
  constexpr std::chrono::milliseconds kAfterItsEnd{100};
  constexpr std::chrono::milliseconds kAfterSilence{2'000};
  if (leads() || attempt_dir.empty() || !Suspects(facts, 0)) return;
  std::this_thread::sleep_for(facts.silent         ? kAfterSilence
                              : IsOnOneNode(facts) ? kAfterItsEnd
                                                   : kAfterRankZero);
  if (!ShouldWriteVerdictForRankZero(attempt_dir, identity.rank)) return;
  AddRanksLostByPeers(attempt_dir, &facts);
  RunStatus now;
  now.identity = identity;
  now.identity.host = facts.hosts.empty() ? std::string() : facts.hosts.front();
  now.world = world;
  now.last = last;
  now.last_eval = last_eval;
  now.best = best;
  if (now.last.step == 0) {
    now.last.step = from.step;
    now.last.samples_total = from.samples_total;
  }
  const Status written = WriteVerdictForRankZero(attempt_dir, identity, now,
                                                 MakeRunVerdict(outcome, facts, dur_s), modes.file);
  if (!written.ok()) LogWarning(written.message());
}

bool RunReporter::Impl::HasFilesToClose(const Status& outcome, const FailureFacts& facts) const {
  if (attempt_dir.empty()) return false;
  return leads() || IsFailure(outcome) || Suspects(facts, 0);
}

// This rank ends all others when it has returned (ExitRank), also the one that writes the verdict,
// which may be slower: on a busy machine by seconds.
void RunReporter::Impl::WaitForVerdict(const FailureFacts& facts, Clock::time_point until) const {
  constexpr std::chrono::milliseconds kPause{20};
  if (leads() || LostRanks(facts).empty()) return;  // without lost ranks no other one ends
  while (Clock::now() < until && !PathExists(attempt_dir + "/verdict.json")) {
    std::this_thread::sleep_for(kPause);
  }
}

void RunReporter::Impl::CloseFiles(const Status& outcome, const FailureFacts& facts, double dur_s,
                                   Clock::time_point until) {
  if (leads()) ReleaseDiskSpace(attempt_dir);
  WriteFailure(outcome, facts);  // before the others are notified and read it
  if (events) WriteVerdict(MakeRunVerdict(outcome, facts, dur_s));
  if (folder) folder->owner().Release();
  CloseForRankZero(outcome, facts, dur_s);
  WaitForVerdict(facts, until);
}

void RunReporter::Finish(const Status& outcome, const FailureFacts& facts) {
  Impl& impl = *impl_;
  if (impl.finished) return;
  impl.finished = true;
  auto limit = impl.options.end_limit;
  if (!facts.suspects.empty()) limit = std::min(limit, kAfterALoss);
  if (impl.events) {
    if (impl.events->stalled_for() > kHangs) limit = std::min(limit, kForAHang);
    impl.events->Flush(kForTheLastLines);
  }
  if (impl.own_steps) impl.WriteOwnSteps(impl.own_steps->MakeRecord());
  impl.ReportWriteFailure();
  if (impl.leads()) SetLogHook({});  // before the objects that it uses are destroyed
  impl.bar.reset();
  const double dur_s = SecondsSince(impl.started);
  const Impl::Clock::time_point until = Impl::Clock::now() + std::min(limit, kAfterALoss) * 9 / 10;
  const bool closed = !impl.HasFilesToClose(outcome, facts) ||
                      CallWithin(limit, [impl = impl_, outcome, facts, dur_s, until] {
                        impl->CloseFiles(outcome, facts, dur_s, until);
                      });
  if (!closed) {
    impl.close_status = {ErrorKind::kIo,
                         StrCat("the run folder '", impl.run_dir(), "' does not answer: ",
                                impl.leads() ? "verdict.json" : "the crash record of this rank",
                                " was not written within ", limit.count(), " ms")};
  } else if (impl.events) {
    impl.close_status = impl.final_write;
  }
  if (impl.options.guard != nullptr) impl.options.guard->Release();
  impl.crash.reset();
  const std::string here =
      StrCat("; this attempt: ", Counted(impl.steps_done() - impl.from.step, "update"));
  LogAndPrint(StrCat(outcome.ok() ? "done" : "stopped", ": ", Counted(impl.steps_done(), "update"),
                     ", ", impl.samples_done(), " samples", impl.from.step > 0 ? here : "", " in ",
                     DurationText(dur_s)));
  if (!impl.attempt_dir.empty()) LogAndPrint(StrCat("logs: ", impl.AttemptDirAsGiven()));
  FlushTextLog(closed ? kForTheTextLog : std::chrono::milliseconds(0));
}

const Status& RunReporter::close_status() const { return impl_->close_status; }

}  // namespace gaccd
