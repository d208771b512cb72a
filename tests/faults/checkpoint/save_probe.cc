// What the crash test kills: loads the newest generation and saves the next three steps, on so many
// ranks. Errors of saves do not end it.
//
//   save_probe FOLDER RANKS        prints "started EPOCH SINCE" (lease.h), then "committed STEP" as
//   the
//                                  listener is called
//   save_probe FOLDER RANKS check  the same, and "damaged NAME" of what it finds at its start
//   save_probe FOLDER RANKS load   only loads; prints "loaded STEP", or "nothing" and how many
//                                  generations are damaged
#include <cstdio>
#include <cstdlib>
#include <string>

#include "collectives/base/strings.h"
#include "tests/support/small_run.h"

namespace gaccd {
namespace {

void Say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void SayDamaged(const std::string& folder) {
  const auto all = ListGenerations(folder);
  for (std::size_t i = 0; all.ok() && i < all->size(); ++i) {
    const Generation& one = (*all)[i];
    if (one.committed && !VerifyGeneration(folder, one).ok()) Say("damaged " + one.name());
  }
}

Status Run(Communicator& comm, const std::string& folder, bool check) {
  const SmallRun run;
  const bool speaks = comm.rank() == 0;
  const CheckpointOptions options{
      .folder = folder, .keep = {.newest = 2}, .fail_limit = 1000, .block_bytes = 1024};
  GACCD_ASSIGN_OR_RETURN(CheckpointLease lease, CheckpointWriter::Claim(comm, options, Me()));
  if (speaks) Say(StrCat("started ", lease.epoch, " ", lease.job_since));
  if (speaks && check) SayDamaged(folder);
  GACCD_ASSIGN_OR_RETURN(
      auto writer, CheckpointWriter::Start(comm, options, run.Identity(comm.size()),
                                           std::move(lease), [speaks](const SaveEvent& event) {
                                             if (!speaks || !event.status.ok()) return;
                                             Say(StrCat("committed ", event.generation.step));
                                           }));
  GACCD_ASSIGN_OR_RETURN(const LoadOutcome loaded, LoadNewest(comm, folder, AcceptAll));
  if (loaded.state && !run.Matches(*loaded.state)) {
    return {ErrorKind::kData, "what was loaded is not what was saved"};
  }
  const std::int64_t first = loaded.state ? loaded.state->generation.step : 0;
  for (std::int64_t step = first + 1; step <= first + 3; ++step) {
    GACCD_RETURN_IF_ERROR(run.SaveAt(*writer, step));
    while (writer->pending()) GACCD_RETURN_IF_ERROR(writer->Poll());
  }
  return Status::Ok();
}

Status Load(Communicator& comm, const std::string& folder) {
  const SmallRun run;
  GACCD_ASSIGN_OR_RETURN(const LoadOutcome loaded, LoadNewest(comm, folder, AcceptAll));
  if (loaded.state && !run.Matches(*loaded.state)) {
    return {ErrorKind::kInternal, "what was loaded is not what was saved"};
  }
  if (comm.rank() != 0) return Status::Ok();
  Say(loaded.state ? StrCat("loaded ", loaded.state->generation.step)
                   : StrCat("nothing ", loaded.damaged));
  return Status::Ok();
}

}  // namespace
}  // namespace gaccd

int main(int argc, char** argv) {
  const bool load = argc == 4 && std::string(argv[3]) == "load";
  const bool check = argc == 4 && std::string(argv[3]) == "check";
  if (argc != 3 && !load && !check) return 64;
  const gaccd::Status status =
      gaccd::RunThreadRanks(std::atoi(argv[2]), {}, [&](gaccd::Communicator& comm) {
        return load ? gaccd::Load(comm, argv[1]) : gaccd::Run(comm, argv[1], check);
      });
  if (status.ok()) return 0;
  std::fprintf(stderr, "save_probe: %s\n", status.message().c_str());
  return static_cast<int>(status.kind());
}
