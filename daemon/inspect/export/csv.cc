#include <unordered_map>
#include <variant>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/inspect/export/exports.h"
#include "daemon/inspect/watch/event_stream.h"

namespace gaccd {
namespace {

std::string Quoted(std::string_view text) {
  if (text.find_first_of("\",\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string Cell(const EventValue& value) {
  return std::visit(Overloaded{[](std::nullptr_t) { return std::string(); },
                               [](bool flag) { return std::string(flag ? "true" : "false"); },
                               [](std::string_view text) { return Quoted(text); },
                               [](auto number) { return NumberText(number); }},
                    value);
}

// The column of each key.
using Columns = std::unordered_map<std::string, std::size_t>;

Result<Columns> FindColumns(const std::string& run_dir, const std::string& attempt) {
  GACCD_ASSIGN_OR_RETURN(EventStream stream, EventStream::Open(run_dir, attempt));
  Columns columns;
  Event event;
  while (stream.Next(&event)) {
    for (const auto& [key, value] : event.Fields()) columns.emplace(key, columns.size());
  }
  return columns;
}

std::string Row(const std::string& first, const std::vector<std::string>& cells) {
  std::string row = Quoted(first);
  for (const std::string& cell : cells) row.append(",") += cell;
  return row + "\r\n";
}

}  // namespace

Status ExportCsv(const std::string& run_dir, const std::string& attempt, TextSink& out,
                 std::vector<std::string>* notes) {
  GACCD_ASSIGN_OR_RETURN(const Columns columns, FindColumns(run_dir, attempt));
  std::vector<std::string> cells(columns.size());
  for (const auto& [key, place] : columns) cells[place] = Quoted(key);
  GACCD_RETURN_IF_ERROR(out.Write(Row("attempt_dir", cells)));
  GACCD_ASSIGN_OR_RETURN(EventStream stream, EventStream::Open(run_dir, attempt));
  Event event;
  while (stream.Next(&event)) {
    for (std::string& cell : cells) cell.clear();
    for (const auto& [key, value] : event.Fields()) {
      const auto column = columns.find(std::string(key));
      if (column != columns.end()) cells[column->second] = Cell(value);  // else a new key
    }
    GACCD_RETURN_IF_ERROR(out.Write(Row(event.attempt, cells)));
  }
  *notes = stream.notes();
  return {};
}

}  // namespace gaccd
