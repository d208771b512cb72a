#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/base/ticks.h"
#include "daemon/data/array.h"
#include "daemon/data/gzip.h"
#include "daemon/data/mapped_file.h"
#include "daemon/data/node_share.h"
#include "daemon/data/sources.h"

namespace gaccd {
namespace {

// Removes the text before `separator`, or all of it, from the front of `text`.
std::string_view Take(std::string_view& text, char separator) {
  const std::string_view part = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) + 1 - first);
}

// The next field of `line`, without the quotes around it.
std::string_view TakeField(std::string_view& line) {
  const std::string_view field = Trimmed(Take(line, ','));
  const bool quoted = field.size() >= 2 && field.front() == '"' && field.back() == '"';
  return quoted ? Trimmed(field.substr(1, field.size() - 2)) : field;
}

// What from_chars() makes of the whole `text`, which may begin with a plus; invalid_argument where
// it is no number.
template <typename T>
std::errc ParseNumber(std::string_view text, T* value) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return end == text.data() + text.size() ? error : std::errc::invalid_argument;
}

// Appends the number that `text` is; false when it is none of this type.
template <typename T>
bool Parse(std::string_view text, std::vector<T>& values) {
  return ParseNumber(text, &values.emplace_back()) == std::errc();
}

// What tables have in the place of a number that is missing.
bool IsMissing(std::string_view field) {
  constexpr std::string_view kMissing[] = {"", "na", "n/a", "null", "none", "?", "-"};
  std::string lower(field);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::find(kMissing, lower) != std::end(kMissing);
}

// Of a line of names: no field is a number, and not all of them are missing. Of others none.
std::vector<std::string> NamesIn(std::string_view line) {
  std::vector<std::string> names;
  bool named = false;
  while (!line.empty()) {
    const std::string_view field = TakeField(line);
    float value = 0;
    if (ParseNumber(field, &value) != std::errc::invalid_argument) return {};
    named = named || !IsMissing(field);
    names.emplace_back(field);
  }
  return named ? names : std::vector<std::string>();
}

std::string ShownField(std::string_view text) {
  constexpr std::size_t kShown = 40;
  return Printable(text.substr(0, kShown));
}

// Columns are known by their places: in each table of a job they must be the same.
Status CheckHeading(const std::string& path, std::vector<std::string> names, Heading* first) {
  if (first == nullptr) return Status::Ok();
  if (first->names.empty()) {
    *first = {path, std::move(names)};
    return Status::Ok();
  }
  const auto [expected, found] = std::ranges::mismatch(first->names, names);
  if (expected == first->names.end() || found == names.end()) return Status::Ok();
  return {ErrorKind::kData, StrCat(path, ": column ", found - names.begin() + 1, ": expected '",
                                   ShownField(*expected), "', as in the heading of ", first->file,
                                   ", found '", ShownField(*found), "'")};
}

// What else than a comma separates the numbers in a field; empty: nothing that is known.
std::string_view OtherSeparator(std::string_view field) {
  constexpr std::pair<char, std::string_view> kSeparators[] = {
      {';', "';'"}, {'\t', "tabs"}, {'|', "'|'"}};
  for (const auto& [separator, name] : kSeparators) {
    if (field.find(separator) != std::string_view::npos) return name;
  }
  if (field.find(' ') == std::string_view::npos) return {};
  while (!field.empty()) {
    float value = 0;
    const std::string_view part = Take(field, ' ');
    if (!part.empty() && ParseNumber(part, &value) != std::errc()) return {};
  }
  return "spaces";
}

// What to do about a field that is no number; empty: the message says it.
std::string AdviceOn(std::string_view field, bool only_target) {
  if (const std::string_view separator = OtherSeparator(field); !separator.empty()) {
    return StrCat("; the line looks as if ", separator,
                  " separated its fields: write the table with commas between them and points in "
                  "the numbers (pandas: read_csv(FILE, sep=...).to_csv(FILE, index=False))");
  }
  const bool word = std::ranges::any_of(
      field, [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; });
  float value = 0;
  const bool number = ParseNumber(field, &value) != std::errc::invalid_argument;
  if (!word || number || IsMissing(field)) return {};
  return only_target ? "; labels that are words become numbers: 0 for the first word, 1 for the "
                       "second and so on, and csv.classes is how many there are"
                     : "; a column of words, of which n differ, becomes n columns of 0 and 1";
}

// The columns as they are read: features, then either labels or targets.
struct Columns {
  std::vector<float> features;
  std::vector<float> targets;
  std::vector<std::int64_t> labels;
};

Status ReadLine(std::string_view line, const CsvSpec& source, std::int64_t width,
                Columns& columns) {
  std::int64_t column = 0;
  for (bool more = true; more; ++column) {
    more = line.find(',') != std::string_view::npos;
    const std::string_view text = TakeField(line);
    if (column >= width) continue;
    const bool feature = column < width - source.targets;
    const bool label = !feature && source.classes > 0;
    const bool parsed = label ? Parse(text, columns.labels)
                              : Parse(text, feature ? columns.features : columns.targets);
    if (parsed) continue;
    return {ErrorKind::kData,
            StrCat("column ", column + 1, ": expected a ", label ? "whole number" : "number",
                   ", found '", ShownField(text), "'",
                   AdviceOn(text, !feature && source.targets == 1))};
  }
  if (column == width) return Status::Ok();
  return {ErrorKind::kData, StrCat("expected ", width, " columns, found ", column)};
}

template <typename T>
Array MakeArray(const std::string& name, StoredType type, Shape shape, std::vector<T> values,
                TextPlaces places) {
  const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  return {.name = name,
          .type = type,
          .shape = std::move(shape),
          .data = std::as_bytes(std::span(*owner)),
          .owner = owner,
          .file = {},
          .places = std::make_shared<const TextPlaces>(std::move(places))};
}

}  // namespace

// Every rank reads the file for itself, and keeps its numbers in memory.
OpenedDataset OpenSource(const CsvSpec& source, const Opening& opening) {
  if (source.classes > 0 && source.targets != 1) {
    return Status(ErrorKind::kConfig,
                  StrCat("csv: expected one column of labels, found targets ", source.targets));
  }
  GACCD_ASSIGN_OR_RETURN(const std::string path, opening.Locate(source.path));
  GACCD_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (IsGzip(file->bytes())) {
    return Status(ErrorKind::kData, path + ": is compressed by gzip; expected text");
  }
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  Columns columns;
  std::vector<std::int64_t> lines;  // of each sample
  std::int64_t width = 0;
  bool first = true;  // line that is not empty
  Ticks ticks([&] { return opening.share == nullptr ? Status::Ok() : opening.share->Tick(); });
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::string_view whole_line = Take(text, '\n');
    GACCD_RETURN_IF_ERROR(ticks.Add(whole_line.size() + 1));
    const std::string_view line = Trimmed(whole_line);
    if (line.empty()) continue;
    if (std::exchange(first, false)) {
      std::vector<std::string> names = NamesIn(line);
      if (!names.empty()) {
        GACCD_RETURN_IF_ERROR(CheckHeading(path, std::move(names), opening.heading));
        continue;
      }
    }
    if (lines.empty()) width = 1 + std::ranges::count(line, ',');
    lines.push_back(number);
    Status read = ReadLine(line, source, width, columns);
    if (!read.ok()) return std::move(read).WithContext(StrCat(path, ":", number));
  }
  if (width <= source.targets) {
    return Status(ErrorKind::kData, StrCat(path, ": expected more columns than the ",
                                           source.targets, " of the targets, found ", width));
  }
  const std::int64_t samples = std::ssize(lines);
  const std::int64_t features = width - source.targets;
  const TextPlaces behind{.lines = lines, .first_column = features + 1};
  Array targets = source.classes > 0 ? MakeArray(path, StoredType::kI64, {samples},
                                                 std::move(columns.labels), behind)
                                     : MakeArray(path, StoredType::kF32, {samples, source.targets},
                                                 std::move(columns.targets), behind);
  return MakeArrayDataset(MakeArray(path, StoredType::kF32, {samples, features},
                                    std::move(columns.features), {.lines = std::move(lines)}),
                          std::move(targets), source.classes, opening.normalize, opening.rules,
                          opening.share);
}

}  // namespace gaccd
