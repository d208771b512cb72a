// Events as lines of JSON: one flat object, less than 4096 bytes (texts are cut), no line break.
// The keys are those of the records (event_record.h). Pure functions; thread-safe.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/telemetry/event_record.h"

namespace gaccd {

// Now: RFC 3339, UTC, microseconds: "2026-11-20T03:04:05.123456Z".
[[nodiscard]] std::string Timestamp();

// An object that has the envelope, and no more.
[[nodiscard]] JsonObject EnvelopeOf(const RunIdentity& who, const LineStamp& stamp,
                                    const char* event);

template <EventRecord Record>
[[nodiscard]] std::string EventJson(const RunIdentity& who, const LineStamp& stamp,
                                    const Record& record) {
  JsonObject out = EnvelopeOf(who, stamp, Record::kEvent);
  Record::VisitFields(out, record);
  return out.Take();
}

// The other way round; texts may be anything. What `line` lacks, or has as another type, is as in a
// new Record, but not what is `required`: then it is kData, as where it is no such event.
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
  const std::string problem = fields.ProblemOf(required);
  if (!problem.empty()) return refuse(problem);
  return record;
}

}  // namespace gaccd
