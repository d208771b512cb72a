#include "daemon/data/class_names.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "collectives/base/files.h"
#include "collectives/base/json.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/data/images/image_files.h"
#include "daemon/data/prepared.h"

namespace gaccd {
namespace {

constexpr const char* kMetadataKey = "classes";

// From {"0": "neg", "1": "pos"}; empty if all names are the default "LABEL_<number>".
std::vector<std::string> NamesById(const Json& config) {
  const Json* const labels = config.Find("id2label");
  if (labels == nullptr || labels->object() == nullptr) return {};
  std::vector<std::string> names;
  bool named = false;
  for (std::size_t i = 0; i < labels->object()->size(); ++i) {
    const std::string* const name = labels->text(std::to_string(i));
    if (name == nullptr) return {};
    names.push_back(*name);
    named = named || names.back() != StrCat("LABEL_", i);
  }
  return named ? names : std::vector<std::string>();
}

// From the data.json next to the file, or to the first file that matches a pattern.
Result<ClassNames> ReadClassNamesNextTo(std::string path) {
  if (IsPattern(path)) {
    const auto files = Glob(path);  // errors are reported when the data is opened
    if (!files.ok() || files->empty()) return ClassNames{};
    path = files->begin()->second;
  }
  const std::string from = DataJsonPath(path);
  if (!PathExists(path) || !PathExists(from)) return ClassNames{};
  GACCD_ASSIGN_OR_RETURN(const std::string text, ReadStart(from, kMaxTextBytes));
  return ClassNames{PreparedClasses(text, path), from};
}

}  // namespace

Status CheckSameClasses(const ClassNames& expected, const ClassNames& found) {
  const auto [one, other] = std::ranges::mismatch(expected.names, found.names);
  if (one == expected.names.end() || other == found.names.end()) return Status::Ok();
  return {
      ErrorKind::kData,
      StrCat("class ", one - expected.names.begin(), " is '", *one, "' in ", expected.from,
             ", and '", *other, "' in ", found.from,
             expected.folders || found.folders
                 ? "; a class is numbered by the place of its folder: the folders of images "
                   "must have the same names in both, and none may be missing"
                 : "; classes need the same numbers: make the data with tools/prepare --like=DIR "
                   "or --classes=NAMES, or give data.class_name in this order")};
}

Result<ClassNames> ReadClassNames(const Job& job) {
  const DataSpec data = WithAbsolutePaths(job).data;
  std::vector<std::string> files;
  std::vector<std::string> folders;
  for (const SourceSpec& source : {data.train, data.eval.value_or(SyntheticSpec{})}) {
    const auto* images = std::get_if<ImagesSpec>(&source);
    if (images != nullptr && !images->labels) folders.push_back(images->path);
    const auto* tokens = std::get_if<TokensSpec>(&source);
    if (tokens == nullptr) continue;
    if (tokens->labels) files.push_back(*tokens->labels);
    files.push_back(tokens->tokens);
  }
  ClassNames names;
  // Folder names may have any bytes; weights and checkpoints store UTF-8.
  const auto add = [&names](ClassNames found) {
    for (std::string& name : found.names) name = Utf8Name(name);
    GACCD_RETURN_IF_ERROR(CheckSameClasses(names, found));
    if (names.names.size() < found.names.size()) names = std::move(found);
    return Status::Ok();
  };
  for (const std::string& file : files) {
    GACCD_ASSIGN_OR_RETURN(ClassNames found, ReadClassNamesNextTo(file));
    GACCD_RETURN_IF_ERROR(add(std::move(found)));
  }
  for (const std::string& folder : folders) {
    // Tar files have no class names. Errors are reported when the data is opened.
    if (IsShards(folder) || !PathExists(folder)) continue;
    GACCD_ASSIGN_OR_RETURN(std::vector<std::string> classes, ListClassFolders(folder));
    GACCD_RETURN_IF_ERROR(add({std::move(classes), folder, /*folders=*/true}));
  }
  // Last: a training copies the names of the files and folders into the job.
  GACCD_RETURN_IF_ERROR(add(JobClassNames(data, "data.class_name of the job")));
  return names;
}

ClassNames JobClassNames(const DataSpec& data, std::string from) {
  const auto* images = std::get_if<ImagesSpec>(&data.train);
  const bool folders = images != nullptr && !images->labels && !IsShards(images->path);
  return {data.class_name, std::move(from), folders};
}

ClassNames ReadWeightsClassNames(const std::string& path,
                                 const std::map<std::string, std::string>& metadata) {
  if (const auto own = metadata.find(kMetadataKey); own != metadata.end()) {
    return {ParseClassNames(own->second), path};
  }
  const std::string config = ParentFolder(path) + "/config.json";
  const auto text = ReadStart(config, kMaxTextBytes);
  if (!text.ok()) return {};
  const auto parsed = Json::ParseObject(*text);
  return parsed ? ClassNames{NamesById(*parsed), config} : ClassNames{};
}

std::map<std::string, std::string> ClassMetadata(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  return {{kMetadataKey, ClassNamesText(names)}};
}

std::string ClassNamesText(const std::vector<std::string>& names) {
  return Json(Json::Array(names.begin(), names.end())).Dump();
}

std::vector<std::string> ParseClassNames(const std::string& text) {
  const auto parsed = Json::Parse(text);
  return parsed ? TextsIn(*parsed) : std::vector<std::string>();
}

}  // namespace gaccd
