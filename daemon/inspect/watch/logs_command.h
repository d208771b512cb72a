// `gaccd logs RUN`: the text logs of all ranks or the events, over all attempts.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/inspect/watch/text_logs.h"

namespace gaccd {

struct LogsRequest {
  std::string folder = ".";
  std::string attempt;  // see ListAttempts()
  LogFilter filter;
  bool events = false;  // lines of EventStream instead of text logs
  bool follow = false;  // also new lines, until IsPermanentlyEnded()
};

// Prints the lines on stdout; on stderr problems of the files and why `follow` ends. kUsage:
// ListAttempts(); kIo: stdout.
Status RunLogsCommand(const LogsRequest& request);

}  // namespace gaccd
