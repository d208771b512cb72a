#include "daemon/model/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::size_t kMaxRank = 64;
constexpr std::size_t kMaxShown = 40;  // bytes of foreign text in a message

std::string Shown(std::string_view text) { return Printable(text.substr(0, kMaxShown)); }

// Takes what the parser of nlohmann-json finds: {name: {dtype, shape: [n...], data_offsets: [b,
// e]}}, and {name: text} for kMetadata. Anything else ends the parsing, so nothing nests deeper.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  Result<SafetensorsHeader> Read(std::string_view text) {
    // The parser takes a NUL for the end of the text, and line breaks after the last '}'.
    const bool whole = text.starts_with('{') && text[text.find_last_not_of(' ')] == '}' &&
                       text.find('\0') == std::string_view::npos;
    if (!whole) Fail("'{' first, only spaces after the last '}', and no NUL", Shown(text));
    if (!whole || !Json::sax_parse(text, this)) return Status(ErrorKind::kData, failure_);
    return std::move(header_);
  }

  bool start_object(std::size_t) override {
    return depth_ < 2 ? Enter() : Fail("no object", "'{'");
  }
  bool key(std::string& name) override { return depth_ == 1 ? Name(name) : Field(name); }
  bool end_object() override {
    if (depth_ == 2 && !in_metadata_) {
      field_.clear();
      for (std::size_t i = 0; i < kFields.size(); ++i) {
        if (!seen_[i]) return Fail(StrCat("\"", kFields[i], "\""), "its end");
      }
    }
    return Leave();
  }
  bool start_array(std::size_t) override {
    numbers_.clear();
    const bool wanted = depth_ == 2 && !in_metadata_ && (field_ == kShape || field_ == kOffsets);
    return wanted ? Enter() : Fail(depth_ < 2 ? "'{'" : "text", "'['");
  }
  bool end_array() override {
    SafetensorsEntry& entry = header_.entries.back();
    if (field_ == kShape) {
      entry.shape = numbers_;
    } else if (numbers_.size() == 2) {
      entry.begin = numbers_[0];
      entry.end = numbers_[1];
    } else {
      return Fail("two numbers", StrCat(numbers_.size()));
    }
    return Leave();
  }
  bool string(std::string& value) override {
    if (depth_ != 2) return Fail(depth_ < 2 ? "'{'" : "a whole number", Shown(value));
    if (in_metadata_) {
      header_.metadata[field_] = value;
    } else if (field_ == kDtype) {
      header_.entries.back().dtype = value;
    } else {
      return Fail("'['", Shown(value));
    }
    return true;
  }
  bool number_unsigned(std::uint64_t value) override {
    if (depth_ != 3) return Fail(depth_ < 2 ? "'{'" : "another kind of value", StrCat(value));
    if (value > std::numeric_limits<std::int64_t>::max()) {
      return Fail("a whole number that fits 63 bits", StrCat(value));
    }
    const std::size_t most = field_ == kShape ? kMaxRank : 2;
    if (numbers_.size() == most) return Fail(StrCat("at most ", most, " numbers"), "more");
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool number_integer(std::int64_t value) override { return NoNumber(StrCat(value)); }
  bool number_float(double, const std::string& text) override { return NoNumber(text); }
  bool boolean(bool) override { return NoNumber("true or false"); }
  bool null() override { return NoNumber("null"); }
  bool binary(Json::binary_t&) override { return NoNumber("bytes"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 3: ...", with foreign text.
    std::string_view what = error.what();
    what.remove_prefix(std::min(what.size(), what.find(": ") + 2));
    failure_ = StrCat("no JSON at byte ", position, " of the header: ", Printable(what));
    return false;
  }

 private:
  static constexpr std::string_view kDtype = "dtype";
  static constexpr std::string_view kShape = "shape";
  static constexpr std::string_view kOffsets = "data_offsets";
  static constexpr std::array<std::string_view, 3> kFields = {kDtype, kShape, kOffsets};

  bool Enter() {
    ++depth_;
    return true;
  }
  bool Leave() {
    --depth_;
    return true;
  }
  bool Fail(std::string_view expected, std::string_view found) {
    std::string where = depth_ == 0 ? "" : StrCat(" for '", Shown(name_), "'");
    if (!field_.empty()) where += StrCat(" ", Shown(field_));
    failure_ = StrCat("expected ", expected, " in the header", where, ", found ", found);
    return false;
  }
  bool NoNumber(std::string_view found) {
    return Fail(
        depth_ == 3 ? "a whole number of at least 0, that fits 63 bits" : "'{', '[' or text",
        found);
  }

  bool Name(const std::string& name) {
    if (!names_.insert(name).second) return Fail("a new name", StrCat("'", Shown(name), "' again"));
    name_ = name;
    field_.clear();
    in_metadata_ = name == kMetadata;
    seen_ = {};
    if (!in_metadata_) header_.entries.push_back({.name = name, .dtype = {}, .shape = {}});
    return true;
  }
  bool Field(const std::string& name) {
    field_ = name;
    if (in_metadata_) {
      return !header_.metadata.contains(name) || Fail("each key only once", "it again");
    }
    const auto found = std::find(kFields.begin(), kFields.end(), name);
    const auto index = static_cast<std::size_t>(found - kFields.begin());
    if (found == kFields.end() || std::exchange(seen_[index], true)) {
      return Fail("\"dtype\", \"shape\" and \"data_offsets\", each once",
                  StrCat("\"", Shown(name), '"'));
    }
    return true;
  }

  SafetensorsHeader header_;
  std::set<std::string, std::less<>> names_;
  std::string name_;   // of the entry
  std::string field_;  // of the entry, or key of the metadata
  bool in_metadata_ = false;
  std::array<bool, kFields.size()> seen_{};
  std::vector<std::int64_t> numbers_;
  int depth_ = 0;
  std::string failure_;
};

}  // namespace

bool IsUtf8(std::string_view text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text) {
  return HeaderReader().Read(text);
}

std::string SafetensorsHeaderText(const SafetensorsHeader& header) {
  Json::object_t object;  // a vector in order; emplace() would search for each name
  if (!header.metadata.empty()) object.emplace_back(kMetadata, header.metadata);
  for (const SafetensorsEntry& entry : header.entries) {
    object.emplace_back(entry.name, Json{{"dtype", entry.dtype},
                                         {"shape", entry.shape},
                                         {"data_offsets", {entry.begin, entry.end}}});
  }
  std::string text = Json(std::move(object)).dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace gaccd
