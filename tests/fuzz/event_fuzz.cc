// A line of events.jsonl, or a file with one event, of a run that another user may own.
#include <cstdint>
#include <string_view>

#include "daemon/inspect/watch/event.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

int gaccd::FuzzEvent(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  Event event;
  if (!ParseEvent(line, &event)) return 0;
  FuzzCheck(event.line == line, "the line is kept as it is");
  FuzzCheck(!event.name.empty(), "an event has a name");
  FuzzCheck(event.Text("ev") == event.name, "its name is that of the line");
  for (const auto& [key, value] : event.Fields()) {
    FuzzCheck(event.Find(key).has_value(), "every key is found");
    FuzzCheck(!event.Whole(key) || event.Number(key).has_value(), "a whole number is a number");
  }
  return 0;
}
