// `gaccd logs RUN`: the text logs of all ranks, or the events, over all attempts.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/inspect/watch/text_logs.h"

namespace gaccd {

struct LogsRequest {
  std::string folder = ".";
  std::string attempt;  // as ListAttempts() takes it
  LogFilter filter;
  bool events = false;  // the lines of EventStream in place of the text
  bool follow = false;  // what comes later, too, until the run has ended for good
};

// Prints the lines on stdout, and on stderr what is wrong with the files and why `follow` ends.
// kUsage: ListAttempts(); kIo: stdout.
Status RunLogsCommand(const LogsRequest& request);

}  // namespace gaccd
