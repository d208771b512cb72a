// EventRecord: a struct with the name of its event, kEvent, and a description of its members,
// VisitFields(), which converts the record to a line of JSON (event_text.h) and back.
// RunReporter::Report() also uses two optional functions of a record: EventLine(record), its line
// for users, and Apply(record, status), its changes of STATUS.json.
//
//   struct FanRecord {
//     static constexpr const char* kEvent = "fan";
//     std::int64_t turns_per_s = 0;
//     static void VisitFields(auto& fields, auto& fan) {
//       fields("turns_per_s", fan.turns_per_s);
//     }
//   };
//
// Lines are flat, keys have the unit as a suffix (_s, _bytes, _ratio) and are never removed;
// integers stay integers. Methods of `fields`: JsonObject and JsonFields, flat_json.h.
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

// The level of the line: "info", unless the record defines another.
[[nodiscard]] std::string_view GetLevel(const EventRecord auto& record) {
  if constexpr (requires { record.level(); }) return record.level();
  return "info";
}

// Limits of texts in one line; escaped, they add up to less than kMaxLineBytes.
inline constexpr std::size_t kMaxLineBytes = 4096;
inline constexpr std::size_t kMaxWord = 24;  // words, versions, digests
inline constexpr std::size_t kMaxName = 64;
inline constexpr std::size_t kMaxList = 512;
inline constexpr std::size_t kMaxMessage = 1200;
inline constexpr std::size_t kMaxSpeeds = 2048;  // needs no escaping

// The writer of a line: the same for all lines of a file.
struct RunIdentity {
  std::string run;  // the job's name
  std::string job;  // SLURM job id, or "local-<pid>"
  int attempt = 0;  // SLURM_RESTART_COUNT, or the number of local attempts in this folder
  int rank = 0;
  std::string host;
};

// The varying part of the envelope, the keys with which every line begins: v (1), ts, run, job,
// attempt, rank, host, ev (the event's name), lvl, seq.
struct LineStamp {
  std::string ts;                   // see Timestamp()
  std::int64_t seq = 0;             // number of the line in the file from 1, including lost ones
  std::string_view level = "info";  // "info", "warning", "error"
};

}  // namespace gaccd
