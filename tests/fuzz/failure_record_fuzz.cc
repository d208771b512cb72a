// crash/r00017.json, which another rank left: read by the one that writes the verdict.
#include <cstdint>
#include <string>

#include "daemon/telemetry/end_events.h"
#include "daemon/telemetry/event_text.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

int gaccd::FuzzFailureRecord(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  const auto failure = ReadEvent<Failure>(std::string(reinterpret_cast<const char*>(data), size));
  if (!failure.ok()) {
    FuzzCheck(failure.status().kind() == ErrorKind::kData, "the kind of a refusal is data");
    return 0;
  }
  const RunIdentity who{"run", "1", 0, 0, "host"};
  const std::string line = EventJson(who, {"2026-11-20T03:14:05.123456Z", 1, "error"}, *failure);
  FuzzCheck(line.size() < kMaxLineBytes, "a record is a short line");
  FuzzCheck(line.find('\n') == std::string::npos, "a record is one line");
  FuzzCheck(ReadEvent<Failure>(line).ok(), "a record that was written can be read");
  Verdict verdict{.verdict = "requeue", .exit = 69, .reason = failure->message};
  verdict.first = Suspect{3, failure->phase};
  verdict.first_failure = *failure;
  FuzzCheck(EventJson(who, {"ts", 1, "error"}, verdict).size() < kMaxLineBytes,
            "a verdict is a short line");
  return 0;
}
