#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "collectives/base/ticks.h"
#include "daemon/data/formats/array.h"
#include "daemon/data/formats/column_names.h"
#include "daemon/data/formats/csv_line.h"
#include "daemon/data/formats/gzip.h"
#include "daemon/data/mapped_file.h"
#include "daemon/data/node_share.h"
#include "daemon/data/normalize.h"
#include "daemon/data/several_files.h"
#include "daemon/data/sources.h"

namespace gaccd {
namespace {

// Removes the next field from `line` and returns it without quotes.
std::string_view ConsumeField(std::string_view& line) {
  const std::string_view field = Trimmed(ConsumeUntil(line, ','));
  const bool quoted = field.size() >= 2 && field.front() == '"' && field.back() == '"';
  return quoted ? Trimmed(field.substr(1, field.size() - 2)) : field;
}

std::string ShownField(std::string_view text) {
  constexpr std::size_t kShown = 40;
  return Printable(text.substr(0, kShown));
}

// kData if a feature column is named label or target and no target column is.
Status CheckTargetNames(const std::vector<std::string>& names, std::int64_t targets) {
  const auto is_target = [](std::string name) {
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name == "label" || name == "labels" || name == "target" || name == "targets";
  };
  const auto end = names.end() - std::min(targets, std::ssize(names));
  const auto found = std::find_if(names.begin(), end, is_target);
  if (found == end || std::any_of(end, names.end(), is_target)) return Status::Ok();
  return {ErrorKind::kData,
          StrCat("column ", found - names.begin() + 1, ", '", Printable(*found),
                 "', is a feature: expected targets in the last columns, found '",
                 Printable(names.back()),
                 "' as the last one; data.column_name of the job gives columns another order")};
}

// Advice for a table that lacks `targets` columns; empty for another difference.
std::string TargetsAdvice(std::int64_t columns, std::int64_t targets, std::int64_t found) {
  if (found + targets != columns) return {};
  return StrCat("; a table without targets, to predict, needs ",
                targets == 1 ? "the last column" : StrCat("the last ", targets, " columns"),
                " with any numbers, as 0, which predict ignores");
}

// MatchColumns(), with advice for a file whose columns are the features alone.
Result<std::vector<std::int64_t>> PlacesOf(const std::vector<std::string>& known,
                                           const std::vector<std::string>& names,
                                           std::int64_t targets) {
  auto places = MatchColumns(known, names);
  const std::string advice = TargetsAdvice(std::ssize(known), targets, std::ssize(names));
  if (places.ok() || advice.empty()) return places;
  if (!MatchColumns({known.begin(), known.end() - targets}, names).ok()) return places;
  return Status(ErrorKind::kData, places.status().message() + advice);
}

// The position of each column of the data in a file whose first line is `line`, with these names or
// none. The order is that of `known`, which the first file with names defines if it is empty.
Result<std::vector<std::int64_t>> ColumnPlaces(std::string_view line,
                                               const std::vector<std::string>& names,
                                               std::int64_t targets,
                                               std::vector<std::string>* known) {
  if (!names.empty()) {
    if (known->empty()) {
      GACCD_RETURN_IF_ERROR(CheckTargetNames(names, targets));
      *known = names;
    }
    return PlacesOf(*known, names, targets);
  }
  const std::size_t width =
      known->empty() ? 1 + static_cast<std::size_t>(std::ranges::count(line, ',')) : known->size();
  std::vector<std::int64_t> places(width);
  std::iota(places.begin(), places.end(), 0);
  return places;
}

// The separator in `text`, of those that no number contains; empty: none.
std::string_view PlainSeparator(std::string_view text) {
  constexpr std::pair<char, std::string_view> kSeparators[] = {
      {';', "';'"}, {'\t', "tabs"}, {'|', "'|'"}};
  for (const auto& [separator, name] : kSeparators) {
    if (text.find(separator) != std::string_view::npos) return name;
  }
  return {};
}

// The separator other than a comma that the field seems to contain; empty: none.
std::string_view OtherSeparator(std::string_view field) {
  if (const auto plain = PlainSeparator(field); !plain.empty()) return plain;
  if (field.find(' ') == std::string_view::npos) return {};
  while (!field.empty()) {
    float value = 0;
    const std::string_view part = ConsumeUntil(field, ' ');
    if (!part.empty() && ParseNumber(part, &value) != std::errc()) return {};
  }
  return "spaces";
}

std::string SeparatorAdvice(std::string_view separator) {
  return StrCat("; the line looks as if ", separator,
                " separated its fields: write the table with commas between them and points in the "
                "numbers (pandas: read_csv(FILE, sep=...).to_csv(FILE, index=False))");
}

constexpr const char* kQuoteAdvice =
    "; numbers have no quotes and no commas for thousands (pandas: read_csv(FILE, thousands=','))";

// Advice for a line with another number of fields; empty: none.
std::string LineAdvice(std::string_view line) {
  if (line.find('\0') != std::string_view::npos) return "; expected UTF-8, this may be UTF-16";
  const std::string_view separator = PlainSeparator(line);
  if (!separator.empty()) return SeparatorAdvice(separator);
  return line.find('"') == std::string_view::npos ? "" : kQuoteAdvice;
}

// Advice for a field that is not a number, or a label that is not whole; empty: none.
std::string AdviceFor(std::string_view field, bool label, bool only_target) {
  const std::string_view separator = OtherSeparator(field);
  if (!separator.empty()) return SeparatorAdvice(separator);
  if (field.find('"') != std::string_view::npos) return kQuoteAdvice;
  if (field.empty() || IsMissing(field)) {
    return "; a missing value: give it a number, as the mean of its column, or remove the line";
  }
  const bool word = std::ranges::any_of(
      field, [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; });
  float value = 0;
  const bool number = ParseNumber(field, &value) != std::errc::invalid_argument;
  // astype(int) would change any other number to another label.
  if (label && field.find('.') != std::string_view::npos && number && !word &&
      value == std::floor(value)) {
    return "; labels have no point (pandas: astype(int))";
  }
  if (!word || number) return {};
  return only_target ? "; labels that are words become numbers: 0 for the first word, 1 for the "
                       "second and so on, and csv.classes is how many there are"
                     : "; a column of words, of which n differ, becomes n columns of 0 and 1";
}

// Values read so far: normalised features, and either labels or targets.
struct Columns {
  Affine affine;  // of the features
  std::vector<float> features = {};
  std::vector<float> targets = {};
  std::vector<std::int64_t> labels = {};
  std::vector<std::int64_t> lines = {};  // of each sample
  bool named = false;                    // whether the file has names of columns
  bool known = false;                    // whether other tables or the weights name the columns
  bool counted = false;                  // whether the first sample counts up by 1
  bool unnamed = false;                  // whether the first column of the file has no name
  std::vector<double> first = {};        // values of that column
  std::string rounded = {};              // the first whole number that f32 cannot represent
};

// Appends the number in `text`, from column `place` of the file; false if it is not a number.
bool ReadFloat(std::string_view text, std::int64_t place, bool feature, Columns& columns) {
  double value = 0;
  const std::errc error = ParseNumber(text, &value);
  const bool out_of_range = error == std::errc::result_out_of_range;
  // 0 for a number that is too small, as elsewhere.
  if (out_of_range) value = std::strtod(std::string(text).c_str(), nullptr);
  if (error != std::errc() && (!out_of_range || std::isinf(value))) return false;
  const Affine affine = feature ? columns.affine : Affine();
  auto& values = feature ? columns.features : columns.targets;
  values.push_back(static_cast<float>(value * affine.factor + affine.shift));
  if (columns.unnamed && feature && place == 0) columns.first.push_back(value);
  const bool whole = std::abs(value) < 0x1p53 && std::trunc(value) == value;
  const auto stored = static_cast<double>(values.back());
  if (columns.rounded.empty() && whole && affine == Affine() && stored != value) {
    columns.rounded = StrCat(text, " in line ", columns.lines.back(), ", column ", place + 1,
                             " -> ", static_cast<std::int64_t>(stored), " in f32");
  }
  return true;
}

bool ReadInteger(std::string_view text, std::vector<std::int64_t>& values) {
  return ParseNumber(text, &values.emplace_back()) == std::errc();
}

// Whether each number is its predecessor plus 1.
bool CountsUp(std::span<const std::string_view> fields) {
  return std::ranges::adjacent_find(fields, [](std::string_view one, std::string_view next) {
           double before = 0;
           double after = 0;
           return ParseNumber(one, &before) != std::errc() ||
                  ParseNumber(next, &after) != std::errc() || after != before + 1;
         }) == fields.end();
}

// Whether these may be row numbers: whole numbers, none twice.
bool AreRowNumbers(std::vector<double> values) {
  std::ranges::sort(values);
  return values.size() > 1 && std::ranges::adjacent_find(values) == values.end() &&
         std::ranges::all_of(values, [](double value) { return std::trunc(value) == value; });
}

// places: positions of the columns in the line, features first.
Status ReadLine(std::string_view line, const CsvSpec& source, std::span<const std::int64_t> places,
                std::vector<std::string_view>& fields, Columns& columns) {
  fields.clear();
  std::string_view rest = line;
  for (bool more = true; more;) {
    more = rest.find(',') != std::string_view::npos;
    fields.push_back(ConsumeField(rest));
  }
  if (fields.size() != places.size()) {
    return {ErrorKind::kData,
            StrCat("expected ", Counted(places.size(), "column"), ", found ", fields.size(),
                   LineAdvice(line),
                   columns.known && !columns.named
                       ? TargetsAdvice(std::ssize(places), source.targets, std::ssize(fields))
                       : "")};
  }
  const std::int64_t features = std::ssize(places) - source.targets;
  for (std::int64_t i = 0; i < std::ssize(places); ++i) {
    const std::int64_t place = places[static_cast<std::size_t>(i)];
    const std::string_view text = fields[static_cast<std::size_t>(place)];
    const bool feature = i < features;
    const bool label = !feature && source.classes > 0;
    const bool parsed =
        label ? ReadInteger(text, columns.labels) : ReadFloat(text, place, feature, columns);
    if (parsed) continue;
    const std::string advice = AdviceFor(text, label, !feature && source.targets == 1);
    const bool may_be_names = !columns.named && columns.lines.size() <= 1 && advice != kQuoteAdvice;
    return {ErrorKind::kData,
            StrCat("column ", place + 1, ": expected a ", label ? "whole number" : "number",
                   ", found '", ShownField(text), "'", advice,
                   may_be_names ? "; a first line of names is one without numbers" : "")};
  }
  return Status::Ok();
}

// kData if the first line numbers the columns, as pandas writes a table without names: it is not a
// sample. Accepts a table whose next line also counts up. fields: of the newest sample.
Status CheckFirstLine(std::span<const std::string_view> fields, Columns& columns) {
  constexpr std::size_t kFewest = 3;  // 0,1 may well be a sample
  if (columns.lines.size() == 1) {
    columns.counted =
        !columns.named && fields.size() >= kFewest && fields.front() == "0" && CountsUp(fields);
  }
  if (columns.lines.size() != 2 || !columns.counted || CountsUp(fields)) return Status::Ok();
  return {ErrorKind::kData,
          StrCat("line ", columns.lines.front(), " numbers the columns, 0,1,2 and so on: expected ",
                 "names or a sample (pandas: to_csv(FILE, index=False, header=False))")};
}

// kData if the first column numbers the rows: it is not a feature.
Status CheckFirstColumn(const Columns& columns) {
  if (!columns.unnamed || !AreRowNumbers(columns.first)) return Status::Ok();
  return {ErrorKind::kData,
          "column 1 has no name and numbers the rows, as the index of pandas: expected features "
          "(pandas: to_csv(FILE, index=False)); a column with a name is accepted as a feature"};
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

bool IsTable(const SourceSpec& source) { return std::holds_alternative<CsvSpec>(source); }

Result<std::vector<std::string>> ReadTableColumnNames(const SourceSpec& source) {
  if (!IsTable(source)) return std::vector<std::string>();
  const auto files = ExpandPatterns(source, "");  // errors are reported when the data is opened
  if (!files.ok()) return std::vector<std::string>();
  for (const SourceSpec& file : *files) {
    const std::string& path = std::get<CsvSpec>(file).path;
    const auto start = ReadStart(path, kMaxTextBytes);
    if (!start.ok()) continue;
    std::string_view text = WithoutByteOrderMark(*start);
    std::string_view line;
    while (!text.empty() && Trimmed(line).empty()) line = ConsumeUntil(text, '\n');
    std::vector<std::string> names = ParseHeaderLine(line);
    if (!names.empty() && text.empty() && start->size() == kMaxTextBytes) {
      return Status(ErrorKind::kData, StrCat(path, ": expected names of columns of less than ",
                                             kMaxTextBytes, " bytes"));
    }
    if (names.empty()) continue;
    Status in_order = CheckTargetNames(names, std::get<CsvSpec>(file).targets);
    if (!in_order.ok()) return std::move(in_order).WithContext(path);
    return names;
  }
  return std::vector<std::string>();
}

// Every rank parses the file into its own memory.
OpenedDataset OpenSource(const CsvSpec& source, const OpenContext& opening) {
  if (source.classes > 0 && source.targets != 1) {
    return Status(ErrorKind::kConfig,
                  StrCat("csv: expected one column of labels, found targets ", source.targets));
  }
  GACCD_ASSIGN_OR_RETURN(const std::string path, opening.Locate(source.path));
  GACCD_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  if (IsGzip(file->bytes())) {
    return Status(ErrorKind::kData, path + ": is compressed by gzip; expected text");
  }
  if (text.starts_with("\x93NUMPY")) {
    return Status(ErrorKind::kData,
                  path + ": is an array of NumPy; expected text: use npy {} in place of csv {}");
  }
  text = WithoutByteOrderMark(text);
  GACCD_ASSIGN_OR_RETURN(const Affine affine, MakeAffine(opening.normalize, 0));
  Columns columns{affine};
  std::vector<std::int64_t> places;  // of the columns; set by the first non-empty line
  std::vector<std::string_view> fields;
  Ticks ticks([&] { return opening.share == nullptr ? Status::Ok() : opening.share->Tick(); });
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::string_view whole_line = ConsumeUntil(text, '\n');
    GACCD_RETURN_IF_ERROR(ticks.Add(whole_line.size() + 1));
    const std::string_view line = Trimmed(whole_line);
    if (line.empty()) continue;
    if (places.empty()) {
      const std::vector<std::string> names = ParseHeaderLine(line);
      columns.known = opening.column_names != nullptr && !opening.column_names->empty();
      auto found = ColumnPlaces(line, names, source.targets, opening.column_names);
      if (!found.ok()) return found.status().WithContext(path);
      places = *std::move(found);
      columns.named = !names.empty();
      columns.unnamed = columns.named && (names[0].empty() || names[0] == "Unnamed: 0");
      if (columns.named) continue;
    }
    columns.lines.push_back(number);
    Status read = ReadLine(line, source, places, fields, columns);
    if (read.ok()) read = CheckFirstLine(fields, columns);
    if (!read.ok()) return std::move(read).WithContext(StrCat(path, ":", number));
  }
  Status numbered = CheckFirstColumn(columns);
  if (!numbered.ok()) return std::move(numbered).WithContext(path);
  const std::int64_t samples = std::ssize(columns.lines);
  const std::int64_t width = std::ssize(places);
  if (samples == 0) {
    return Status(ErrorKind::kData, StrCat(path, ": expected at least one sample, found ",
                                           columns.named ? "only names of columns" : "none"));
  }
  if (width <= source.targets) {
    return Status(ErrorKind::kData, StrCat(path, ": expected more columns than the ",
                                           source.targets, " of the targets, found ", width));
  }
  const std::int64_t features = width - source.targets;
  for (std::int64_t& place : places) ++place;  // messages count from 1
  const TextPlaces target_places{columns.lines, {places.begin() + features, places.end()}};
  Array targets = source.classes > 0 ? MakeArray(path, StoredType::kI64, {samples},
                                                 std::move(columns.labels), target_places)
                                     : MakeArray(path, StoredType::kF32, {samples, source.targets},
                                                 std::move(columns.targets), target_places);
  return MakeArrayDataset(
      MakeArray(path, StoredType::kF32, {samples, features}, std::move(columns.features),
                {std::move(columns.lines), places, std::move(columns.rounded)}),
      std::move(targets), source.classes, {}, opening.rules, opening.share);
}

}  // namespace gaccd
