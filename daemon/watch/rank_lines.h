// RankLines: what the ranks of an attempt wrote to files of their own, ev/r00017.jsonl, by time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/watch/event.h"
#include "daemon/watch/line_reader.h"

namespace gaccd {

// Holds a piece of each file, so an attempt may be long. Not thread-safe.
class RankLines {
 public:
  // `attempt`: its folder. One without ev/ has no lines.
  explicit RankLines(const std::string& attempt);

  // The earliest line that was not taken; null: the end so far, until Refresh(). Valid until the
  // next call.
  [[nodiscard]] const Event* Next();
  // REQUIRES: Next() is not null.
  [[nodiscard]] Event Take();
  // Looks for files and lines that came since.
  void Refresh();
  // Lines that are none.
  [[nodiscard]] std::int64_t damaged() const { return damaged_; }

 private:
  struct File {
    LineReader lines;
    std::optional<Event> ahead;
    bool at_end = false;  // as of the last Refresh()
  };
  void Fill(File& file);

  std::string folder_;
  std::map<std::string, File> files_;  // by name
  File* first_ = nullptr;              // that of Next()
  std::int64_t damaged_ = 0;
};

// The newest line of each rank, by rank.
[[nodiscard]] std::vector<Event> NewestRankLines(const std::string& attempt);

}  // namespace gaccd
