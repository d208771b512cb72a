// Events as lines of JSON: one flat object of less than 4096 bytes (texts are truncated), without
// line breaks. The keys are those of the records (event_record.h). Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/telemetry/event_record.h"

namespace gaccd {

// The member "v" of all lines and of STATUS.json. Readers refuse larger ones, as the meaning of
// members may have changed.
inline constexpr std::int64_t kLineVersion = 1;
// kConfig: `path` was written by a newer gaccd. found: its version; lines without one are old.
[[nodiscard]] Status CheckLineVersion(const std::string& path, std::optional<std::int64_t> found);

// The current time: RFC 3339, UTC, microseconds: "2026-11-20T03:04:05.123456Z".
[[nodiscard]] std::string Timestamp();

// An object with only the envelope.
[[nodiscard]] JsonObject MakeEnvelope(const RunIdentity& who, const LineStamp& stamp,
                                      const char* event);

template <EventRecord Record>
[[nodiscard]] std::string EventJson(const RunIdentity& who, const LineStamp& stamp,
                                    const Record& record) {
  JsonObject out = MakeEnvelope(who, stamp, Record::kEvent);
  Record::VisitFields(out, record);
  return out.Finish();
}

// Parses a line of any content. Missing fields, and fields of another type, have the values of a
// new Record; kData if they are `required`, or if it is not such an event.
template <EventRecord Record>
[[nodiscard]] Result<Record> ReadEvent(std::string_view line,
                                       std::initializer_list<std::string_view> required = {}) {
  const auto refuse = [](std::string_view problem) {
    return Status(ErrorKind::kData, StrCat("no ", Record::kEvent, " record: ", problem));
  };
  const std::optional<Json> object = Json::ParseObject(line);
  if (!object) return refuse("expected one object of JSON");
  const std::string* const name = object->text("ev");
  if (name != nullptr && *name != Record::kEvent) return refuse(StrCat("its event is ", *name));
  Record record;
  JsonFields fields(*object);
  Record::VisitFields(fields, record);
  const std::string problem = fields.FindProblem(required);
  if (!problem.empty()) return refuse(problem);
  return record;
}

}  // namespace gaccd
