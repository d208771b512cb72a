// The text log of this process. Only its implementation includes glog.
//
// Warnings go to stderr. After StartTextLog() all lines go to one file per rank,
// <log_dir>/r00017.gaccd.INFO..., in UTC, with rank and step in every line; before, LogInfo() does
// nothing.
//   I20261120 03:04:05.123456 r17 s400 run_reporter.cc:41] epoch: 1 step: 400, loss is ...
// Messages are passed through Printable(), so that names in them cannot start a new line. A thread
// writes them to the file, so callers never wait for the disk (line_writer.h). A line that cannot
// be written is dropped and counted; a later line contains the number. Thread-safe.
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

// Call once per process; later calls do nothing. `log_dir` must exist; if it is empty, or the file
// cannot be created (which is a warning), there is no file.
void StartTextLog(const std::string& log_dir, int rank, Modes modes = {});
// Number of lost lines of the text log.
[[nodiscard]] std::int64_t DroppedLogLines();
// Waits up to `limit` until the file has all lines so far; returns whether it has.
bool FlushTextLog(std::chrono::milliseconds limit);
// Sets the step in the prefix of the following lines.
void SetLogStep(std::int64_t step);

// Sets the prefix of warnings on stderr: "rank 17 on node3". Initially empty.
void SetLogSender(std::string sender);

// Calls `hook` for every warning instead of writing to stderr; an empty function ends that, and
// waits for a call in progress. The hook must not log.
void SetLogHook(std::function<void(const LogLine&)> hook);

}  // namespace gaccd
