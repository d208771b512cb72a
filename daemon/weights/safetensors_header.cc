#include "daemon/weights/safetensors_header.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "collectives/base/json.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kDtype = "dtype";
constexpr std::string_view kShape = "shape";
constexpr std::string_view kOffsets = "data_offsets";
constexpr std::size_t kMaxRank = 64;
constexpr std::size_t kMaxShown = 40;  // bytes of the file quoted in a message

std::string Shown(std::string_view text) { return Printable(text.substr(0, kMaxShown)); }

// name: of the entry; field: of the entry. Either may be empty.
Status Unexpected(std::string_view expected, std::string_view name, std::string_view field,
                  std::string_view found) {
  const std::string where = name.empty() ? "" : StrCat(" for '", Shown(name), "'");
  return {ErrorKind::kData, StrCat("expected ", expected, " in the header", where,
                                   field.empty() ? "" : " ", Shown(field), ", found ", found)};
}

Result<std::vector<std::int64_t>> Numbers(const Json& list, std::string_view name,
                                          std::string_view field, std::size_t max_size) {
  if (list.array() == nullptr) return Unexpected("'['", name, field, Shown(list.Dump()));
  if (list.array()->size() > max_size) {
    return Unexpected(StrCat("at most ", max_size, " numbers"), name, field, "more");
  }
  std::vector<std::int64_t> numbers;
  for (const Json& value : *list.array()) {
    const auto number = value.integer<std::int64_t>();
    if (!number || *number < 0) {
      return Unexpected("a whole number of at least 0, that fits 63 bits", name, field,
                        Shown(value.Dump()));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

Result<SafetensorsEntry> ParseEntry(const std::string& name, const Json& json) {
  if (json.object() == nullptr) return Unexpected("'{'", name, "", Shown(json.Dump()));
  constexpr std::array<std::string_view, 3> kFields = {kDtype, kShape, kOffsets};
  std::array<const Json*, kFields.size()> fields{};
  for (const auto& [key, value] : *json.object()) {
    const auto known = std::ranges::find(kFields, key);
    const auto index = static_cast<std::size_t>(known - kFields.begin());
    if (known == kFields.end() || std::exchange(fields[index], &value) != nullptr) {
      return Unexpected("\"dtype\", \"shape\" and \"data_offsets\", each once", name, "",
                        StrCat("\"", Shown(key), '"'));
    }
  }
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    if (fields[i] == nullptr)
      return Unexpected(StrCat("\"", kFields[i], "\""), name, "", "its end");
  }
  const auto [dtype, shape, offsets] = fields;
  if (dtype->text() == nullptr) return Unexpected("text", name, kDtype, Shown(dtype->Dump()));
  SafetensorsEntry entry{.name = name, .dtype = *dtype->text(), .shape = {}};
  GACCD_ASSIGN_OR_RETURN(entry.shape, Numbers(*shape, name, kShape, kMaxRank));
  GACCD_ASSIGN_OR_RETURN(const auto ends, Numbers(*offsets, name, kOffsets, 2));
  if (ends.size() != 2) return Unexpected("two numbers", name, kOffsets, StrCat(ends.size()));
  entry.begin = ends[0];
  entry.end = ends[1];
  return entry;
}

Result<std::map<std::string, std::string>> ParseMetadata(const Json& json) {
  if (json.object() == nullptr) return Unexpected("'{'", kMetadata, "", Shown(json.Dump()));
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : *json.object()) {
    if (value.text() == nullptr) return Unexpected("text", kMetadata, key, Shown(value.Dump()));
    if (!metadata.emplace(key, *value.text()).second) {
      return Unexpected("each key only once", kMetadata, key, "it again");
    }
  }
  return metadata;
}

}  // namespace

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text) {
  // The parser would stop at a NUL and accept line breaks after the last '}'.
  if (!text.starts_with('{') || text[text.find_last_not_of(' ')] != '}' ||
      text.find('\0') != std::string_view::npos) {
    return Unexpected("'{' first, only spaces after the last '}', and no NUL", "", "", Shown(text));
  }
  std::string error;
  const auto json = Json::Parse(text, &error);
  if (!json) return Status(ErrorKind::kData, "no JSON in the header: " + Printable(error));
  SafetensorsHeader header;
  std::set<std::string_view> names;
  for (const auto& [name, value] : *json->object()) {
    if (!names.insert(name).second) {
      return Unexpected("a new name", name, "", StrCat("'", Shown(name), "' again"));
    }
    if (name == kMetadata) {
      GACCD_ASSIGN_OR_RETURN(header.metadata, ParseMetadata(value));
    } else {
      GACCD_ASSIGN_OR_RETURN(SafetensorsEntry entry, ParseEntry(name, value));
      header.entries.push_back(std::move(entry));
    }
  }
  return header;
}

std::string SafetensorsHeaderText(const SafetensorsHeader& header) {
  Json::Object object;
  if (!header.metadata.empty()) {
    object.emplace_back(kMetadata, Json::Object(header.metadata.begin(), header.metadata.end()));
  }
  for (const SafetensorsEntry& entry : header.entries) {
    object.emplace_back(entry.name,
                        Json::Object{{"dtype", entry.dtype},
                                     {"shape", Json::Array(entry.shape.begin(), entry.shape.end())},
                                     {"data_offsets", Json::Array{entry.begin, entry.end}}});
  }
  std::string text = Json(std::move(object)).Dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace gaccd
