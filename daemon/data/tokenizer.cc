#include "daemon/data/tokenizer.h"

#include <map>
#include <set>
#include <span>
#include <string_view>
#include <variant>

#include "collectives/base/files.h"
#include "collectives/base/json.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"

namespace gaccd {
namespace {

// Ids by token.
Result<Json> ParseVocabulary(const std::string& path, std::string_view text) {
  GACCD_RETURN_IF_ERROR(CheckTokenizerDepth(path, text));
  const auto parsed = Json::Parse(text);
  const Json* const model = parsed ? parsed->Find("model") : nullptr;
  const Json* const vocabulary = model != nullptr ? model->Find("vocab") : nullptr;
  if (vocabulary != nullptr) return *vocabulary;
  return Status(ErrorKind::kData, path + ": expected a JSON object with model.vocab");
}

// REQUIRES: they are not the same.
std::string Difference(const Json& expected, const Json& found) {
  if (expected.object() == nullptr || found.object() == nullptr) {
    return "the same tokens, found others";
  }
  const auto ids = [](const Json& vocabulary) {
    std::map<std::string_view, const Json*> by_token;
    for (const auto& [token, id] : *vocabulary.object()) by_token[token] = &id;
    return by_token;
  };
  const auto tokens = ids(expected);
  const auto others = ids(found);
  if (tokens.size() != others.size()) {
    return StrCat(tokens.size(), " tokens, found ", others.size());
  }
  for (const auto& [token, id] : tokens) {
    const auto other = others.find(token);
    const Json is = other == others.end() ? Json() : *other->second;
    if (is != *id) return StrCat("'", token, "' as ", id->Dump(), ", found ", is.Dump());
  }
  return "the same tokens, found others";
}

Result<Json> ReadVocabulary(const std::string& path) {
  GACCD_ASSIGN_OR_RETURN(const std::string text, ReadTokenizer(path));
  return ParseVocabulary(path, text);
}

Status Compare(const std::string& first, const Json& expected, const std::string& path,
               const Json& found) {
  if (found == expected) return Status::Ok();
  return {ErrorKind::kData, StrCat("the same ids are other tokens in '", path, "' than in '", first,
                                   "': expected ", Difference(expected, found))};
}

}  // namespace

Status CheckTokenizerDepth(const std::string& path, std::string_view text) {
  constexpr int kDeepest = 64;  // those of transformers have less than 10
  if (!IsNestedDeeper(text, kDeepest)) return Status::Ok();
  return {ErrorKind::kData,
          StrCat(path, ": expected JSON that is at most ", kDeepest, " levels deep, found more")};
}

Status CompareTokenizers(const std::string& first, std::string_view first_text,
                         const std::string& path, std::string_view text) {
  GACCD_ASSIGN_OR_RETURN(const Json expected, ParseVocabulary(first, first_text));
  GACCD_ASSIGN_OR_RETURN(const Json found, ParseVocabulary(path, text));
  return Compare(first, expected, path, found);
}

std::string TokenizerPath(const SourceSpec& source) {
  std::string tokens;
  if (const auto* rows = std::get_if<TokensSpec>(&source)) tokens = rows->tokens;
  if (const auto* stream = std::get_if<StreamSpec>(&source)) tokens = stream->path;
  return tokens.empty() ? tokens : FolderOf(tokens) + "/tokenizer.json";
}

Result<std::string> ReadTokenizer(const std::string& path) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20;
  GACCD_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.size() > kMaxBytes) {
    return Status(ErrorKind::kData,
                  StrCat(path, ": expected at most ", kMaxBytes, " bytes, found ", file.size()));
  }
  std::string text(file.size(), '\0');
  GACCD_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status CheckTokenizers(const Job& job, const std::string& weights) {
  const DataSpec data = WithAbsolutePaths(job).data;
  std::set<std::string> paths = {TokenizerPath(data.train)};
  if (data.eval) paths.insert(TokenizerPath(*data.eval));
  if (!weights.empty()) paths.insert(FolderOf(weights) + "/tokenizer.json");
  std::erase_if(paths, [](const std::string& path) { return path.empty() || !PathExists(path); });
  if (paths.size() < 2) return Status::Ok();
  const std::string& first = *paths.begin();
  GACCD_ASSIGN_OR_RETURN(const Json expected, ReadVocabulary(first));
  for (const std::string& path : paths) {
    if (path == first) continue;
    GACCD_ASSIGN_OR_RETURN(const Json found, ReadVocabulary(path));
    GACCD_RETURN_IF_ERROR(Compare(first, expected, path, found));
  }
  return Status::Ok();
}

}  // namespace gaccd
