#include "daemon/data/formats/column_names.h"

#include <algorithm>
#include <numeric>
#include <system_error>
#include <variant>

#include "collectives/base/json.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/data/class_names.h"
#include "daemon/data/formats/csv_line.h"

namespace gaccd {
namespace {

constexpr const char* kColumnsKey = "columns";
constexpr const char* kFeaturesKey = "features";
constexpr const char* kNormalizeKey = "normalize";

std::string NormalizeText(const NormalizeSpec& normalize) {
  std::string text =
      StrCat("scale ", normalize.scale, ", mean ", normalize.mean, ", std ", normalize.std);
  for (const double mean : normalize.channel_mean) text += StrCat(", channel_mean ", mean);
  for (const double std : normalize.channel_std) text += StrCat(", channel_std ", std);
  return text;
}

// Removes a quoted field from the front of `line` and appends its text, with "" as a quote; false
// if the field does not end after the closing quote.
bool ConsumeQuoted(std::string_view& line, std::string* text) {
  for (std::size_t at = 1; at < line.size(); ++at) {
    if (line[at] != '"') {
      *text += line[at];
    } else if (line.substr(at).starts_with("\"\"")) {
      *text += line[at++];
    } else {
      std::string_view rest = line.substr(at + 1);
      if (!Trimmed(ConsumeUntil(rest, ',')).empty()) return false;
      line = rest;
      return true;
    }
  }
  return false;
}

std::string ConsumeName(std::string_view& line) {
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
  std::string quoted;
  if (line.starts_with('"') && ConsumeQuoted(line, &quoted)) return std::string(Trimmed(quoted));
  return std::string(Trimmed(ConsumeUntil(line, ',')));
}

std::string Listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 2000;
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (text.size() > kShown) return StrCat(text, " and ", names.size() - i, " more");
    text += StrCat(i == 0 ? "'" : ", '", Printable(names[i]), "'");
  }
  return text;
}

}  // namespace

std::vector<std::string> ParseHeaderLine(std::string_view line) {
  std::vector<std::string> names;
  bool named = false;
  const std::string fields = StrCat(Trimmed(line), ",");
  for (std::string_view rest = fields; !rest.empty();) {
    const std::string name = ConsumeName(rest);
    float value = 0;
    if (ParseNumber(name, &value) != std::errc::invalid_argument) return {};
    named = named || !IsMissing(name);
    names.push_back(Utf8Name(name));
  }
  return named ? names : std::vector<std::string>();
}

Result<std::vector<std::int64_t>> MatchColumns(const std::vector<std::string>& expected,
                                               const std::vector<std::string>& found) {
  std::vector<std::int64_t> places(expected.size());
  std::iota(places.begin(), places.end(), 0);
  if (found == expected) return places;
  std::map<std::string_view, std::int64_t> place_of;
  for (std::size_t i = 0; i < found.size(); ++i) {
    place_of.emplace(found[i], static_cast<std::int64_t>(i));
  }
  const bool once = place_of.size() == found.size();
  bool same = once && found.size() == expected.size();
  for (std::size_t i = 0; same && i < expected.size(); ++i) {
    const auto place = place_of.extract(expected[i]);
    same = !place.empty();
    if (same) places[i] = place.mapped();
  }
  if (same) return places;
  return Status(ErrorKind::kData,
                StrCat("expected the columns ", Listed(expected),
                       once ? " in any order" : " in this order", ", found ", Listed(found)));
}

Status CheckSameColumns(const std::vector<std::string>& expected, std::string_view from,
                        const std::vector<std::string>& found) {
  if (expected.empty() || found.empty() || expected == found) return Status::Ok();
  return {ErrorKind::kData,
          StrCat("the columns are ", Listed(expected), " in ", from, ", and ", Listed(found),
                 " in the data; data.column_name of the job may give them another order")};
}

Result<std::vector<std::string>> ReadColumnNames(const Job& job) {
  const DataSpec data = WithAbsolutePaths(job).data;
  if (!data.column_name.empty()) return data.column_name;
  for (const SourceSpec& source : {data.train, data.eval.value_or(SyntheticSpec{})}) {
    GACCD_ASSIGN_OR_RETURN(std::vector<std::string> names, ReadTableColumnNames(source));
    if (!names.empty()) return names;
  }
  return std::vector<std::string>();
}

std::map<std::string, std::string> DataMetadata(const DataSpec& data) {
  std::map<std::string, std::string> metadata = ClassMetadata(data.class_name);
  if (!data.column_name.empty()) metadata[kColumnsKey] = ClassNamesText(data.column_name);
  if (data.integer_features)
    metadata[kFeaturesKey] = *data.integer_features ? "integers" : "floats";
  if (!std::holds_alternative<TokensSpec>(data.train)) {
    metadata[kNormalizeKey] = NormalizeText(data.normalize);
  }
  return metadata;
}

Result<std::string> CheckSameFeatures(const std::map<std::string, std::string>& trained,
                                      const std::map<std::string, std::string>& now,
                                      std::string_view from) {
  const auto differs = [&](const char* key) {
    return trained.contains(key) && now.contains(key) && trained.at(key) != now.at(key);
  };
  // Other data may be stored at another scale, so this is not an error.
  if (differs(kNormalizeKey)) {
    return StrCat("data.normalize: ", from, " was trained with ", trained.at(kNormalizeKey),
                  ", this job has ", now.at(kNormalizeKey),
                  ": the model sees other values unless its data are stored at another scale");
  }
  if (!differs(kFeaturesKey)) return std::string();
  return Status(
      ErrorKind::kData,
      StrCat("expected features stored as ", trained.at(kFeaturesKey),
             ", as in the training data of ", from, ", found ", now.at(kFeaturesKey),
             ", under the same data.normalize: save them with the same type and scale, or "
             "set data.normalize for theirs"));
}

std::vector<std::string> ColumnNamesFromMetadata(
    const std::map<std::string, std::string>& metadata) {
  const auto found = metadata.find(kColumnsKey);
  return found == metadata.end() ? std::vector<std::string>() : ParseClassNames(found->second);
}

}  // namespace gaccd
