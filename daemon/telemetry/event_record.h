// What an event is. A record is a struct with the name of its event, kEvent, and one description of
// its members, VisitFields(): by it the record becomes a line of JSON (event_text.h), and the line
// a record again. RunReporter::Report() also finds two functions of a record, where there are
// any: EventLine(record), its line for people, and Apply(record, status), what it changes in
// STATUS.json.
//
//   struct FanRecord {
//     static constexpr const char* kEvent = "fan";
//     std::int64_t turns_per_s = 0;
//     static void VisitFields(auto& fields, auto& fan) {
//       fields("turns_per_s", fan.turns_per_s);
//     }
//   };
//
// Lines are flat, keys have the unit as a suffix (_s, _bytes, _ratio) and are only ever added;
// integers stay integers. The calls of `fields`: JsonObject and JsonFields, flat_json.h.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gaccd {

template <typename Record>
concept EventRecord = requires {
  { Record::kEvent } -> std::convertible_to<std::string_view>;
};

// What a line of the log is to who reads it: "info", unless the record says otherwise.
[[nodiscard]] std::string_view LevelOf(const EventRecord auto& record) {
  if constexpr (requires { record.level(); }) return record.level();
  return "info";
}

// The limits of the texts of one line, escaped, add up to less than kMaxLineBytes.
inline constexpr std::size_t kMaxLineBytes = 4096;
inline constexpr std::size_t kMaxWord = 24;  // versions
inline constexpr std::size_t kMaxName = 64;
inline constexpr std::size_t kMaxList = 512;
inline constexpr std::size_t kMaxMessage = 1200;
inline constexpr std::size_t kMaxSpeeds = 2048;  // needs no escape

// The writer of a line: the same on every line of a file.
struct RunIdentity {
  std::string run;  // the job's name
  std::string job;  // SLURM job id, or "local-<pid>"
  int attempt = 0;  // SLURM_RESTART_COUNT, or the count of local attempts in this folder
  int rank = 0;
  std::string host;
};

// What differs from line to line in the envelope, the keys with which every line begins: v (1), ts,
// run, job, attempt, rank, host, ev (the event's name), lvl, seq.
struct LineStamp {
  std::string ts;                   // as Timestamp()
  std::int64_t seq = 0;             // counts the lines of the file from 1, lost ones included
  std::string_view level = "info";  // "info", "warning", "error"
};

}  // namespace gaccd
