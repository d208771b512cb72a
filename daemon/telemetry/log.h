// The text log of this process, for the daemon's code: nobody else includes glog.
//
// Before StartTextLog() lines go to stderr. After it they go to one file a rank,
// <log_dir>/r00017.gaccd.INFO..., in UTC, every line marked with rank and step:
//   I20261120 03:04:05.123456 r17 s400 run_reporter.cc:41] epoch: 1 step: 400, loss is ...
// Messages go through Printable(): a name in them cannot begin a line of its own. A thread writes
// them to the file: nobody waits for the disk (line_writer.h). A line that cannot be written is
// dropped and counted; a later line says how many. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "daemon/telemetry/events.h"

namespace gaccd {

void LogInfo(std::string_view message,
             std::source_location where = std::source_location::current());
void LogWarning(std::string_view message,
                std::source_location where = std::source_location::current());

// Once a process; later calls do nothing. `log_dir` must exist; empty: warnings go to stderr, and
// so they do, with one more, when the file cannot be made.
void StartTextLog(const std::string& log_dir, int rank, Modes modes = {});
// Lines of the text log that are lost so far.
[[nodiscard]] std::int64_t DroppedLogLines();
// Waits until the file has all lines so far, but not longer than `limit`: whether it has.
bool FlushTextLog(std::chrono::milliseconds limit);
// The step shown in the prefix of every line from now on.
void SetLogStep(std::int64_t step);

// The name in front of warnings on stderr: "rank 17 on node3". Empty at first.
void SetLogSender(std::string sender);

// Calls `hook` for every warning, in place of stderr; an empty function ends it, and
// waits for a call in progress. The hook must not log.
void SetLogHook(std::function<void(const LogLine&)> hook);

}  // namespace gaccd
