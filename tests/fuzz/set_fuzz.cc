// A command line, a line an argument; --set=path=value over a job.
#include <algorithm>
#include <string>
#include <vector>

#include "daemon/config/arguments.h"
#include "daemon/config/job_text.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace gaccd {
namespace {

const Job& BaseJob() {
  static const Result<Job> job = ParseJobText(R"(
name: "base"
model { layer { name: "a" linear { in: 10 out: 4 } } layer { name: "b" relu {} }
        layer { name: "c" linear { in: 4 out: 3 } } loss { softmax_cross_entropy {} } }
data { train { npy { features: "x.npy" targets: "y.npy" classes: 3 } } }
batch { target: 500 micro: 64 } optimizer { lr: 0.1 adamw {} } epochs: 3)",
                                              "base");
  FuzzCheck(job.ok(), job.ok() ? "" : job.status().message().c_str());
  return *job;
}

void CheckSet(const std::string& value) {
  const std::size_t equals = value.find('=');
  if (equals == std::string::npos) return;
  Flags flags;
  flags.job_fields = {{.path = value.substr(0, equals),
                       .value = value.substr(equals + 1),
                       .given = "--set=" + value}};
  const auto job = OverlayFlags(BaseJob(), flags);
  if (!job.ok()) {
    const ErrorKind kind = job.status().kind();
    FuzzCheck(kind == ErrorKind::kUsage || kind == ErrorKind::kConfig,
              "the kind of a refusal is usage or config");
    return;
  }
  const auto again = ParseJobText(JobText(*job), "resolved");
  FuzzCheck(again.ok(), "what a flag made of a job is a job");
  FuzzCheck(JobText(*again) == JobText(*job), "and reads back the same");
}

}  // namespace
}  // namespace gaccd

int gaccd::FuzzSet(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.find("flagfile") != std::string::npos) return 0;  // reads files of this machine
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  std::vector<const char*> args;
  for (const std::string& line : lines) args.push_back(line.c_str());
  const KnownFlag known[] = {{"--set"}, {"--epochs"}, {"--strict", true}};
  const auto split = SplitArguments(args, known);
  if (!split.ok()) {
    FuzzCheck(split.status().kind() == ErrorKind::kUsage, "the kind of a refusal is usage");
    return 0;
  }
  FuzzCheck(split->flags.size() + split->words.size() <= args.size(), "nothing is made up");
  for (const FlagValue& flag : split->flags) {
    if (flag.name == "--set") CheckSet(flag.value);
    FuzzCheck(!flag.value.empty(), "a flag has a value; its type is checked where it is used");
  }
  return 0;
}
