// TextLogs: the text logs of all ranks of one attempt (daemon/telemetry/log.h), merged by time,
// then an error with the reason of verdict.json, where the attempt did not end with 0 and all ranks
// are asked for: the ranks themselves say it on stderr.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/watch/attempts.h"
#include "daemon/inspect/watch/merger.h"

namespace gaccd {

// Which lines are asked for. Empty: all.
struct LogFilter {
  std::optional<std::int64_t> rank;
  std::string host;     // as ranks.tsv has it; the part before its first dot is enough
  int least_level = 0;  // 0 info, 1 warning, 2 error
};

// Whether a host is meant by this name.
[[nodiscard]] bool IsHost(std::string_view host, std::string_view asked);

// One message of one rank, with the lines that continue it.
struct LogRecord {
  std::string time;  // "20261120 03:04:05.123456": its order is that of the times
  int level = 0;
  std::string text;  // lines, each Printable() and with its break
};

// Not thread-safe. Times are those of the nodes' clocks. Files of up to a few thousand ranks.
class TextLogs {
 public:
  // kIo when the folder cannot be read; no log at all is no error.
  static Result<TextLogs> Open(const Attempt& attempt, const LogFilter& filter);
  TextLogs(TextLogs&&) noexcept;
  TextLogs& operator=(TextLogs&&) noexcept;
  ~TextLogs();

  // false: the end so far.
  bool Next(LogRecord* record);
  // Looks for files and lines that were written since; then Next() may continue.
  Status Refresh();
  // For people: files that could not be read, lines that are cut off.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  class Source;
  TextLogs(Attempt attempt, LogFilter filter);
  bool NextOfVerdict(LogRecord* record);

  Attempt attempt_;
  LogFilter filter_;
  std::vector<std::string> hosts_;
  std::set<std::string> names_;  // of the files that are known
  std::unique_ptr<Merger<Source>> merger_;
  bool verdict_taken_ = false;
};

}  // namespace gaccd
