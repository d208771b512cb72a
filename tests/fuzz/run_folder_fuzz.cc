// STATUS.json, ledger.jsonl and submit.jsonl: of another host, cut off, or another user's.
#include <algorithm>
#include <string>

#include "daemon/inspect/watch/run_state.h"
#include "daemon/rundir/ledger.h"
#include "daemon/telemetry/log.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_folder.h"
#include "tests/fuzz/fuzz_parts.h"
#include "tests/fuzz/fuzz_targets.h"

namespace gaccd {
namespace {

void CheckText(const std::string& text) {
  FuzzCheck(std::ranges::none_of(
                text, [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7F; }),
            "what is printed has no control characters");
}

void CheckLedger(const std::string& path) {
  const std::vector<LedgerEntry> entries = ReadLedger(path);
  for (const LedgerEntry& one : entries) FuzzCheck(!one.attempt.empty(), "an entry has an attempt");
  const LedgerEntry last{.attempt = "007-812", .ended = "now", .exit = 74, .reason = "full"};
  FuzzCheck(AppendToLedger(path, last).ok(), "a line can be added");
  const std::vector<LedgerEntry> more = ReadLedger(path);
  FuzzCheck(more.size() == entries.size() + 1, "a line that was cut off swallows no other");
  FuzzCheck(more.back().attempt == "007-812" && more.back().exit == 74, "the newest is the last");
}

}  // namespace
}  // namespace gaccd

int gaccd::FuzzRunFolder(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  const auto [status, ledger, submissions] = SplitParts<3>(data, size);
  const FuzzFolder folder;
  if (!status.empty()) folder.Write("STATUS.json", status);
  folder.Write("ledger.jsonl", ledger);
  folder.Write("submit.jsonl", submissions);
  const WallTime now(std::chrono::seconds(1'795'143'900));
  const auto state = ReadRunState(folder.path(), now);
  if (state.ok()) {
    FuzzCheck(state->age_s >= 0 && state->submitted_age_s.value_or(0) >= 0,
              "ages are not negative");
    CheckText(StateText(*state));
    CheckText(RunsTable({&*state, 1}));
    FuzzCheck(StateJson(*state).find('\n') == StateJson(*state).size() - 1, "JSON is one line");
    FuzzCheck(ExitCode(state->phase) >= 0 && ExitCode(state->phase) <= 2, "there is an exit code");
  } else {
    const ErrorKind kind = state.status().kind();
    const bool newer = state.status().message().find("newer gaccd") != std::string::npos;
    FuzzCheck(kind == ErrorKind::kData || kind == ErrorKind::kUsage ||
                  (kind == ErrorKind::kConfig && newer),
              "the kind of a refusal is data or usage, or config for a newer gaccd");
  }
  if (const auto newest = NewestSubmission(folder.path())) {
    FuzzCheck(newest->jobs.find_first_not_of("0123456789_,") == std::string::npos,
              "jobs are numbers: they go to a shell");
  }
  CheckLedger(folder.path() + "/ledger.jsonl");
  return 0;
}
