// RankLines: the lines of the ranks' own files ev/r00017.jsonl of an attempt, merged by time.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "daemon/inspect/watch/event.h"
#include "daemon/inspect/watch/line_reader.h"
#include "daemon/inspect/watch/merger.h"

namespace gaccd {

// Keeps one piece of each file in memory. Not thread-safe.
class RankLines {
 public:
  // attempt: its folder. Without ev/ there are no lines.
  explicit RankLines(const std::string& attempt);

  // The earliest line that was not popped; null at the end so far, until Refresh(). Valid until the
  // next call.
  [[nodiscard]] const Event* Next() { return merger_.First(); }
  // REQUIRES: Next() is not null.
  [[nodiscard]] Event Pop() { return merger_.Pop(); }
  // Looks for new files and lines.
  void Refresh();
  // The number of damaged lines.
  [[nodiscard]] std::int64_t damaged() const;

 private:
  class File {
   public:
    explicit File(std::string path);
    bool Advance();
    [[nodiscard]] Event& record() { return event_; }
    [[nodiscard]] bool IsBefore(const File& other) const;
    [[nodiscard]] std::int64_t damaged() const { return damaged_; }

   private:
    LineReader lines_;
    Event event_;
    std::int64_t damaged_ = 0;
  };

  std::string folder_;
  std::set<std::string> names_;  // of known files
  Merger<File> merger_;
};

// The newest line of each rank, by rank.
[[nodiscard]] std::vector<Event> NewestRankLines(const std::string& attempt);

}  // namespace gaccd
