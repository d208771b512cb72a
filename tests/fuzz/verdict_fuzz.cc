// What a job script acts on: verdict.json, srun.err, STATUS.json, the first event, ledger.jsonl.
#include <algorithm>
#include <string>

#include "daemon/submit/verdict_command.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_folder.h"
#include "tests/fuzz/fuzz_parts.h"
#include "tests/fuzz/fuzz_targets.h"

namespace gaccd {
namespace {

void CheckAnswer(const std::string& text) {
  const auto lines = std::ranges::count(text, '\n');
  FuzzCheck(lines == 2 || lines == 3, "an answer has two or three lines");
  const std::string next = text.substr(0, text.find('\n'));
  FuzzCheck(next == "done" || next == "requeue" || next == "norequeue" || next == "fail",
            "the first one is the next step");
  if (lines == 2) return;
  const std::size_t last = text.rfind('\n', text.size() - 2) + 1;
  constexpr std::string_view kExclude = "--exclude=";
  FuzzCheck(std::string_view(text).substr(last).starts_with(kExclude), "the third one is a flag");
  FuzzCheck(text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                   "._-,",
                                   last + kExclude.size()) == text.size() - 1,
            "it has names of hosts only");
}

}  // namespace
}  // namespace gaccd

int gaccd::FuzzVerdict(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  const auto [verdict, srun, status, events, ledger] = SplitParts<5>(data, size);
  const FuzzFolder folder;
  const std::string attempt = "attempts/000-812";
  if (!verdict.empty()) folder.Write(attempt + "/verdict.json", verdict);
  folder.Write(attempt + "/srun.err", srun);
  folder.Write(attempt + "/events.jsonl", events);
  folder.Write("STATUS.json", status);
  folder.Write("ledger.jsonl", ledger);
  VerdictRequest request{.attempt_dir = folder.path() + "/" + attempt, .srun_rc = 137};
  for (const char* nodes : {"", "n[1-3],gpu7"}) {
    request.nodelist = nodes;
    const auto answer = RunVerdictCommand(request);
    FuzzCheck(answer.ok(), "there is an answer whatever was left");
    CheckAnswer(*answer);
  }
  return 0;
}
