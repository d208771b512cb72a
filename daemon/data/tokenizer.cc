#include "daemon/data/tokenizer.h"

#include <map>
#include <set>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/json.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"

namespace gaccd {
namespace {

// Checks that model.vocab, the ids by token, exists.
Result<Json> ParseTokenizer(const std::string& path, std::string_view text) {
  GACCD_RETURN_IF_ERROR(CheckTokenizerDepth(path, text));
  auto parsed = Json::Parse(text);
  const Json* const model = parsed ? parsed->Find("model") : nullptr;
  if (model != nullptr && model->Find("vocab") != nullptr) return *std::move(parsed);
  return Status(ErrorKind::kData, path + ": expected a JSON object with model.vocab");
}

// The first difference of two vocabularies. REQUIRES: expected != found.
std::string Difference(const Json& expected, const Json& found) {
  if (expected.object() == nullptr || found.object() == nullptr) {
    return "the same tokens, found different ones";
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
  return "the same tokens, found different ones";
}

using Steps = std::vector<const Json*>;

// A normalizer or pre_tokenizer may be a sequence of others, null, or missing.
void AppendSteps(const Json* part, Steps& steps) {
  if (part == nullptr || part->is_null()) return;
  for (const char* name : {"normalizers", "pretokenizers"}) {
    const Json* const inner = part->Find(name);
    if (inner == nullptr || inner->array() == nullptr) continue;
    for (const Json& step : *inner->array()) AppendSteps(&step, steps);
    return;
  }
  steps.push_back(part);
}

std::string TypeName(const Json& step) {
  const std::string* const type = step.text("type");
  return type == nullptr ? "one without a type" : *type;
}

std::string TypeNames(const Steps& steps) {
  std::string types;
  for (const Json* step : steps) types += StrCat(types.empty() ? "" : ", ", TypeName(*step));
  return types.empty() ? "none" : types;
}

// null if unknown. Some versions of the library omit defaults.
Json Setting(const Json& step, std::string_view name) {
  const Json* found = step.Find(name);
  if (found != nullptr && !found->is_null()) return *found;
  if (name == "use_regex" && TypeName(step) == "ByteLevel") return true;
  found = name == "strip_accents" ? step.Find("lowercase") : nullptr;
  return found == nullptr ? Json() : *found;
}

std::string Shown(std::string text) {
  constexpr std::size_t kMost = 80;
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return ValidUtf8(text);
}

// Empty if both steps are equal as far as the files specify them. A setting that only one of them
// has is not compared, because its name differs between versions of the library.
std::string StepsDifference(const Steps& expected, const Steps& found) {
  constexpr std::string_view kSettings[] = {
      "lowercase",   "strip_accents",    "clean_text",        "handle_chinese_chars",
      "pattern",     "content",          "behavior",          "invert",
      "use_regex",   "add_prefix_space", "replacement",       "prepend_scheme",
      "split",       "prepend",          "individual_digits", "strip_left",
      "strip_right", "length",           "delimiter",         "precompiled_charsmap",
  };
  const std::string types = TypeNames(expected);
  const std::string others = TypeNames(found);
  if (types != others || expected.size() != found.size()) {
    return StrCat(Shown(types), ", found ", Shown(others));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (const std::string_view name : kSettings) {
      const Json setting = Setting(*expected[i], name);
      const Json other = Setting(*found[i], name);
      if (setting.is_null() || other.is_null() || setting == other) continue;
      return StrCat(Shown(TypeName(*expected[i])), " with ", name, " ", Shown(setting.Dump()),
                    ", found ", Shown(other.Dump()));
    }
  }
  return {};
}

}  // namespace

Status CheckTokenizerDepth(const std::string& path, std::string_view text) {
  constexpr int kDeepest = 64;  // tokenizers of transformers have less than 10
  if (!IsNestedDeeper(text, kDeepest)) return Status::Ok();
  return {ErrorKind::kData,
          StrCat(path, ": expected JSON that is at most ", kDeepest, " levels deep, found more")};
}

Status CompareTokenizers(const std::string& first, std::string_view first_text,
                         const std::string& path, std::string_view text) {
  GACCD_ASSIGN_OR_RETURN(const Json expected, ParseTokenizer(first, first_text));
  GACCD_ASSIGN_OR_RETURN(const Json found, ParseTokenizer(path, text));
  const auto differ = [&](std::string_view what, const std::string& difference) {
    return Status(ErrorKind::kData,
                  StrCat(what, " in '", path, "' than in '", first, "': expected ", difference));
  };
  const Json& tokens = *expected.Find("model")->Find("vocab");
  const Json& others = *found.Find("model")->Find("vocab");
  if (tokens != others) return differ("the same ids are other tokens", Difference(tokens, others));
  for (const char* part : {"normalizer", "pre_tokenizer"}) {
    Steps steps;
    Steps other;
    AppendSteps(expected.Find(part), steps);
    AppendSteps(found.Find(part), other);
    const std::string difference = StepsDifference(steps, other);
    if (difference.empty()) continue;
    return differ("the same text has other tokens", StrCat("the ", part, " ", difference));
  }
  return Status::Ok();
}

std::string TokenizerPath(const SourceSpec& source) {
  std::string tokens;
  if (const auto* rows = std::get_if<TokensSpec>(&source)) tokens = rows->tokens;
  if (const auto* stream = std::get_if<StreamSpec>(&source)) tokens = stream->path;
  return tokens.empty() ? tokens : ParentFolder(tokens) + "/tokenizer.json";
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
  if (!weights.empty()) paths.insert(ParentFolder(weights) + "/tokenizer.json");
  std::erase_if(paths, [](const std::string& path) { return path.empty() || !PathExists(path); });
  if (paths.size() < 2) return Status::Ok();
  const std::string& first = *paths.begin();
  GACCD_ASSIGN_OR_RETURN(const std::string first_text, ReadTokenizer(first));
  for (const std::string& path : paths) {
    if (path == first) continue;
    GACCD_ASSIGN_OR_RETURN(const std::string text, ReadTokenizer(path));
    GACCD_RETURN_IF_ERROR(CompareTokenizers(first, first_text, path, text));
  }
  return Status::Ok();
}

}  // namespace gaccd
