// EventStream: the events of a run over all its attempts, as one logical stream.
//
// Attempts come one after the other (attempts.h). Within one, by time: the lines of events.jsonl,
// the crash records of its ranks (crash/r00017.json), where they are asked for the lines of its
// ranks (ev/r00017.jsonl), and verdict.json where another rank or the job script wrote it in the
// place of rank 0. Lines of one file stay in their order whatever their
// times are. What is wrong with the files is said in notes(), and never ends the stream: lines that
// are cut off, damaged, missing or out of order, attempts that are missing or ran at once.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/watch/attempts.h"
#include "daemon/inspect/watch/event.h"
#include "daemon/inspect/watch/line_reader.h"
#include "daemon/inspect/watch/rank_lines.h"

namespace gaccd {

// The event of a file that holds one: a crash record, verdict.json. Nothing where it cannot be
// read.
[[nodiscard]] std::optional<Event> ReadEventFile(const std::string& path);

// Where a stream has come to its end: all before it was read. What Next() returned before says
// nothing of what is wrong with the files.
struct StreamPosition {
  std::string attempt;       // that is read
  std::uint64_t offset = 0;  // in its events.jsonl, of the line that follows
  bool has_verdict = false;
};

// Not thread-safe. Holds one event and the crash records of one attempt, so a run may be long.
class EventStream {
 public:
  enum class OfRanks : std::uint8_t { kLeftOut, kRead };
  // `only`, errors: ListAttempts().
  static Result<EventStream> Open(const std::string& run_dir, std::string_view only = "",
                                  OfRanks of_ranks = OfRanks::kLeftOut);

  // false: the end so far.
  bool Next(Event* event);
  // Looks for attempts and lines that were written since; then Next() may continue.
  Status Refresh();

  // REQUIRES: Next() has returned false; there is an attempt.
  [[nodiscard]] StreamPosition position() const;
  // Next() continues after `position`, and passes over the crash records that its attempt has now.
  // REQUIRES: Next() was not called; attempts() has that of `position`.
  void SkipTo(const StreamPosition& position);

  [[nodiscard]] const std::vector<Attempt>& attempts() const { return list_.attempts; }
  // For people; those on an attempt are complete when Next() has passed it.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  // What is known of the lines of one events.jsonl.
  struct FileCheck {
    std::int64_t damaged = 0;
    std::int64_t missing = 0;  // by seq, beyond what "dropped" and "thinned" events say
    std::int64_t last_seq = 0;
    bool two_writers = false;
    bool back_in_time = false;
    bool has_verdict = false;
    std::optional<WallTime> last;
  };

  EventStream(std::string run_dir, std::string only, OfRanks of_ranks, AttemptList list);
  [[nodiscard]] std::optional<Event> Earliest();
  void Enter(std::size_t attempt);
  void ReadCrashRecords();
  bool ReadLine();
  void Check(const Event& event);
  void ReadVerdict();
  [[nodiscard]] std::vector<std::string> NotesOnAttempt() const;

  std::string run_dir_;
  std::string only_;
  OfRanks of_ranks_;
  AttemptList list_;
  std::size_t at_ = 0;  // the attempt that is read
  std::optional<LineReader> lines_;
  std::optional<Event> ahead_;          // the next one of lines_
  std::deque<Event> records_;           // crash records, by time, that were not returned yet
  std::set<std::string> read_records_;  // the names of all
  std::optional<RankLines> ranks_;      // where they are asked for
  FileCheck check_;
  std::optional<WallTime> before_;  // the last event of the attempt before
  std::vector<std::string> notes_;  // on the attempts before
};

}  // namespace gaccd
