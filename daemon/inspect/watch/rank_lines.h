// RankLines: what the ranks of an attempt wrote to files of their own, ev/r00017.jsonl, by time.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "daemon/inspect/watch/event.h"
#include "daemon/inspect/watch/line_reader.h"
#include "daemon/inspect/watch/merger.h"

namespace gaccd {

// Holds a piece of each file, so an attempt may be long. Not thread-safe.
class RankLines {
 public:
  // `attempt`: its folder. One without ev/ has no lines.
  explicit RankLines(const std::string& attempt);

  // The earliest line that was not taken; null: the end so far, until Refresh(). Valid until the
  // next call.
  [[nodiscard]] const Event* Next() { return merger_.First(); }
  // REQUIRES: Next() is not null.
  [[nodiscard]] Event Pop() { return merger_.Pop(); }
  // Looks for files and lines that came since.
  void Refresh();
  // Lines that are none.
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
  std::set<std::string> names_;  // of the files that are known
  Merger<File> merger_;
};

// The newest line of each rank, by rank.
[[nodiscard]] std::vector<Event> NewestRankLines(const std::string& attempt);

}  // namespace gaccd
