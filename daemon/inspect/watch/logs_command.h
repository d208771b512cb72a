// `gaccd logs RUN`: the text logs of all ranks or the events, over all attempts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/watch/line_reader.h"
#include "daemon/inspect/watch/run_folders.h"

namespace gaccd {

// TextLogs: the text logs of the ranks of one attempt (daemon/telemetry/log.h), merged by time. If
// all ranks are selected and the attempt failed, followed by an error with the reason of
// verdict.json, because ranks only print it to stderr.

// Selects lines. Empty: all.
struct LogFilter {
  std::optional<std::int64_t> rank;
  std::string host;     // as in ranks.tsv; either may lack the domain
  int least_level = 0;  // 0 info, 1 warning, 2 error
};

// One message of one rank, with continuation lines.
struct LogRecord {
  std::string time;  // "20261120 03:04:05.123456", which sorts by time
  int level = 0;
  std::string text;  // lines, each Printable() and with line break
};

// Not thread-safe. Times are from the clocks of the nodes. For up to a few thousand ranks.
class TextLogs {
 public:
  // kIo if the folder cannot be read. Not an error without logs.
  static Result<TextLogs> Open(const Attempt& attempt, const LogFilter& filter);
  TextLogs(TextLogs&&) noexcept;
  TextLogs& operator=(TextLogs&&) noexcept;
  ~TextLogs();

  // False at the end so far.
  bool Next(LogRecord* record);
  // Looks for new files and lines; then Next() may continue.
  Status Refresh();
  // For messages: unreadable files, truncated lines.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  class Source;
  TextLogs(Attempt attempt, LogFilter filter);
  bool NextVerdict(LogRecord* record);

  Attempt attempt_;
  LogFilter filter_;
  std::vector<std::string> hosts_;
  std::set<std::string> names_;  // of known files
  std::unique_ptr<Merger<Source>> merger_;
  bool verdict_taken_ = false;
};

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

// `gaccd logs RUN --compact=N`: reduces the lines of updates in the events of a run that has ended.
struct ThinnedEvents {
  std::int64_t updates = 0;
  std::int64_t kept_updates = 0;  // updates that still have their own lines
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes = 0;
};

// Keeps these lines "step" of each attempt: every `every`-th, the first and the last, those after
// which a later attempt continued, and those with a non-finite loss or gradient, without a step of
// the optimizer or with another number of samples than planned. Each sequence of others is replaced
// by one line "thinned" with their sums (StepSum); all other lines are unchanged. Files are
// replaced atomically, and may be thinned again. REQUIRES: every > 1. kUsage if `run_dir` is not a
// run folder; kConfig, with its name, if a run is live in it; kIo.
[[nodiscard]] Result<ThinnedEvents> ThinEvents(const std::string& run_dir, std::int64_t every);

// Calls ThinEvents() and prints the result.
[[nodiscard]] Status RunThinCommand(const std::string& run_dir, std::int64_t every);

}  // namespace gaccd
