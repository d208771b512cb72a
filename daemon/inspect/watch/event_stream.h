// EventStream: the events of a run over all its attempts, as one logical stream.
//
// Attempts are in sequence (run_folders.h). Within an attempt, events are merged by time: the lines
// of events.jsonl, the crash records of ranks (crash/r00017.json), optionally the lines of ranks
// (ev/r00017.jsonl), and verdict.json if another rank or the job script wrote it instead of rank 0.
// Lines of one file keep their order even if their times do not. Problems of the files do not end
// the stream and are listed in notes(): truncated, damaged, missing and unordered lines, attempts
// that are missing or ran at the same time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/watch/event.h"
#include "daemon/inspect/watch/line_reader.h"
#include "daemon/inspect/watch/run_folders.h"

namespace gaccd {

// RankLines: the lines of the ranks' own files ev/r00017.jsonl of an attempt, merged by time.

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

// Reads a file with one event: a crash record or verdict.json. nullopt if it is unreadable.
[[nodiscard]] std::optional<Event> ReadEventFile(const std::string& path);

// The position of a stream at its end so far.
struct StreamPosition {
  std::string attempt;       // the current attempt
  std::uint64_t offset = 0;  // of the next line in its events.jsonl
  bool has_verdict = false;
};

// Not thread-safe. Memory is bounded: one event and the crash records of one attempt.
class EventStream {
 public:
  enum class RankEvents : std::uint8_t { kSkip, kRead };
  // only, errors: see ListAttempts().
  static Result<EventStream> Open(const std::string& run_dir, std::string_view only = "",
                                  RankEvents rank_events = RankEvents::kSkip);

  // False at the end so far.
  bool Next(Event* event);
  // Looks for new attempts and lines; then Next() may continue.
  Status Refresh();

  // REQUIRES: Next() has returned false; there is an attempt.
  [[nodiscard]] StreamPosition position() const;
  // Makes Next() continue after `position`, without the crash records that its attempt has now.
  // REQUIRES: Next() was not called; attempts() contains position.attempt.
  void SkipTo(const StreamPosition& position);

  [[nodiscard]] const std::vector<Attempt>& attempts() const { return list_.attempts; }
  // Problems of the files, for messages. Complete for attempts that Next() has finished. Does not
  // include lines before SkipTo().
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  // Checks of the lines of one events.jsonl.
  struct FileCheck {
    std::int64_t damaged = 0;
    std::int64_t missing = 0;  // by seq, without those of "dropped" and "thinned" events
    std::int64_t lost = 0;     // of "dropped" events
    std::int64_t last_seq = 0;
    bool two_writers = false;
    bool back_in_time = false;
    bool has_verdict = false;
    std::optional<WallTime> last;
  };

  EventStream(std::string run_dir, std::string only, RankEvents rank_events, AttemptList list);
  [[nodiscard]] std::optional<Event> Earliest();
  void Enter(std::size_t attempt);
  void ReadCrashRecords();
  bool ReadLine();
  void Check(const Event& event);
  void ReadVerdict();
  [[nodiscard]] std::vector<std::string> AttemptNotes() const;

  std::string run_dir_;
  std::string only_;
  RankEvents rank_events_;
  AttemptList list_;
  std::size_t at_ = 0;  // index of the current attempt
  std::optional<LineReader> lines_;
  std::optional<Event> ahead_;          // the next event of lines_
  std::deque<Event> records_;           // crash records not returned yet, by time
  std::set<std::string> read_records_;  // names of all crash records read
  std::optional<RankLines> ranks_;      // set for RankEvents::kRead
  FileCheck check_;
  std::optional<WallTime> before_;  // the last event of the previous attempt
  std::vector<std::string> notes_;  // on previous attempts
};

}  // namespace gaccd
