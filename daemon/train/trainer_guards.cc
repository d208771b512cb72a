// What the trainer does about numbers that are wrong: updates that are not finite, replicas that
// differ, ranks that are slow.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "collectives/base/hex.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "collectives/bootstrap/same_on_all.h"
#include "daemon/optim/digest.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/same_data.h"
#include "daemon/train/trainer.h"
#include "daemon/train/update.h"

namespace gaccd {
namespace {

// A training of which so many updates in a row are left out does not come back by itself.
constexpr std::int64_t kMostNonfinite = 10;

Status CheckSame(Communicator& comm, std::string_view what, std::span<const BadRecord> bad) {
  constexpr std::size_t kShown = 8;
  std::uint64_t sum = 0;
  std::string text;
  for (std::size_t i = 0; i < bad.size(); ++i) {
    sum = sum * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(bad[i].sample) + 1;
    if (i < kShown) text += StrCat(i == 0 ? ": " : " ", bad[i].sample);
  }
  if (bad.size() > kShown) text += " ...";
  // What may be cut off stands last.
  text = StrCat(bad.size(), " records, sum ", Hex(sum), text);
  return CheckSameOnAllRanks(comm, StrCat("damaged records of the ", what, " data"),
                             text.substr(0, kDigestBytes));
}

// "slow rank: rank 3 on n2 costs 43 % of the time: the others waited for it for 12.5 of the last
// 29.1 s (100 updates), most of it in compute".
std::string Describe(const TimeLost& lost, const Straggler& rank, const std::string& host) {
  char share[96];
  std::snprintf(share, sizeof share,
                "%.0f %% of the time: the others waited for it for %.1f of the last %.1f s",
                100 * lost.lost_s / lost.of_s, lost.lost_s, lost.of_s);
  return StrCat(
      "slow rank: rank ", rank.rank, " on ", host, " costs ", share, " (", lost.updates,
      " updates), most of it ",
      lost.phase == "stopped" ? "stopped, or without a core to run on" : StrCat("in ", lost.phase));
}

}  // namespace

// A page that only one node reads wrongly would give this rank other samples than the plan says.
Status Trainer::CheckSameRecords() {
  GACCD_RETURN_IF_ERROR(CheckSame(comm_, "training", bad_records()));
  GACCD_RETURN_IF_ERROR(CheckSame(comm_, "evaluation", bad_eval_records()));
  return CheckSameData(comm_, *train_, eval_.get());
}

Status Trainer::CheckDataUnchanged() {
  Status mine = train_->CheckUnchanged();
  if (mine.ok() && eval_ != nullptr) mine = eval_->CheckUnchanged();
  return AgreeOn(comm_, mine).status;
}

Result<UpdateReplay> Trainer::Replay(const InFlight& done) {
  GACCD_ASSIGN_OR_RETURN(const TrainIndices indices, IndicesFrom(done.update.index));
  UpdateReplay replay{.batches = nullptr, .steps = done.micro_steps, .spec = train_->spec()};
  GACCD_ASSIGN_OR_RETURN(replay.batches,
                         Prefetcher::Start(*train_, std::make_unique<TrainIndices>(indices),
                                           {.held = engine_->held_batches(),
                                            .memory = replay_ring_.MemoryOf(*engine_)}));
  return replay;
}

Result<SharedOffenders> Trainer::FindOffendersTogether(const InFlight& done,
                                                       std::vector<Offender>* mine) {
  const auto look = [&]() -> Result<std::vector<Offender>> {
    GACCD_ASSIGN_OR_RETURN(const UpdateReplay replay, Replay(done));
    return FindOffenders(*engine_, model_.layout(), replay);
  };
  auto found = look();
  if (found.ok() && !found->empty()) {
    LogWarning(StrCat("update ", done.step, ": ", Describe(*found, done.micro_steps)));
  }
  GACCD_ASSIGN_OR_RETURN(
      SharedOffenders shared,
      ShareOffenders(comm_, found, PlanOf(done.update).Load(comm_.rank()), done.micro_steps));
  *mine = *std::move(found);
  return shared;
}

Status Trainer::Explain(const InFlight& done, Status error) {
  if (error.kind() != ErrorKind::kNoRequeue) return error;
  std::vector<Offender> mine;
  const auto shared = FindOffendersTogether(done, &mine);
  return {error.kind(),
          StrCat(error.message(), "; ", shared.ok() ? shared->text : shared.status().message())};
}

Status Trainer::ContinueAfterNonfinite(const InFlight& done, UpdateResult* found) {
  std::vector<Offender> mine;
  GACCD_ASSIGN_OR_RETURN(const SharedOffenders shared, FindOffendersTogether(done, &mine));
  if (++nonfinite_ > kMostNonfinite) {
    return {ErrorKind::kNoRequeue, StrCat("training diverged: ", nonfinite_,
                                          " updates in a row were not finite; ", shared.text)};
  }
  const std::int64_t planned = done.update.samples;
  const bool drops = guards_.on_nonfinite == OnNonfinite::kDropMicroBatch && shared.survivors > 0;
  if (!drops) {
    if (comm_.rank() == 0) {
      LogWarning(StrCat("update ", done.step, " is skipped: ", shared.text));
    }
    return Status::Ok();
  }
  if (shared.survivors < planned) {
    GACCD_ASSIGN_OR_RETURN(*found, RepeatWithout(done, mine, shared.survivors));
  }
  if (!found->finite) {
    return {ErrorKind::kNoRequeue,
            StrCat("training diverged: not finite, also without the ", planned - shared.survivors,
                   " samples of micro-batches that are not; ", shared.text)};
  }
  if (comm_.rank() == 0) {
    LogWarning(StrCat("update ", done.step, " continues with ", shared.survivors, " of ", planned,
                      " samples: ", shared.text));
  }
  return Status::Ok();
}

Result<UpdateResult> Trainer::RepeatWithout(const InFlight& done, const std::vector<Offender>& mine,
                                            std::int64_t samples) {
  GACCD_ASSIGN_OR_RETURN(const UpdateReplay replay, Replay(done));
  const UpdateHooks hooks{
      .note = [&](heartbeat::Phase phase,
                  std::int64_t step) { notes_.Note(phase, done.update.index, step); },
      .leave = {},
      .drop =
          [&](std::int64_t step) {
            return std::ranges::any_of(
                mine, [&](const Offender& offender) { return offender.micro_step == step; });
          }};
  GACCD_RETURN_IF_ERROR(RunUpdate(*engine_, *replay.batches, ProgramOf(done.update),
                                  {.samples = samples,
                                   .update = done.update.index,
                                   .lr = done.lr,
                                   .clip_norm = job_.clip_norm,
                                   .control_words = control_words_},
                                  hooks));
  GACCD_ASSIGN_OR_RETURN(const auto result, engine_->TakeResult(/*wait=*/true));
  if (!result) {
    return Status(ErrorKind::kInternal, "the engine has no results of a repeated update");
  }
  return *result;
}

Result<std::string> Trainer::CompareReplicas(std::int64_t step, TrainingSummary* summary) {
  if (!ComparesAfter(step)) return std::string();
  GACCD_ASSIGN_OR_RETURN(const std::uint64_t digest, engine_->Digest());
  std::string text = Hex(digest);
  Status same = CheckSameOnAllRanks(comm_, "the digest of the parameters", text);
  if (!same.ok() && same.kind() == ErrorKind::kConfig) {  // which all ranks have found
    summary->failed_together = true;
    same = {ErrorKind::kInternal, same.message()};
  }
  GACCD_RETURN_IF_ERROR(std::move(same).WithContext(StrCat("after update ", step)));
  return text;
}

void Trainer::FindStraggler(const UpdateResult& found, StepRecord* record) {
  const auto straggler = times_.Unpack(found.control_words.subspan(kStopWordCount));
  times_.Took({.data_s = found.data_s,
               .compute_s = found.fwd_bwd_s,
               .stopped_s = notes_.peers == nullptr ? 0 : notes_.peers->TakeStopped(),
               .dur_s = found.dur_s});
  if (!straggler) return;
  const std::string& host = comm_.topology().hosts[static_cast<std::size_t>(straggler->rank)];
  record->wait_s = straggler->wait_s;
  record->straggler = SlowRank{.rank = straggler->rank,
                               .host = host,
                               .phase = std::string(straggler->phase),
                               .ratio = straggler->ratio};
  if (straggler->slow && comm_.rank() == 0)
    LogWarning(Describe(*straggler->slow, *straggler, host));
}

}  // namespace gaccd
