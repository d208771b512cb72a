#include "daemon/data/prepared.h"

#include <algorithm>
#include <span>

#include "collectives/base/files.h"
#include "collectives/base/hash.h"
#include "collectives/base/json.h"
#include "collectives/base/strings.h"
#include "daemon/data/mapped_file.h"
#include "daemon/data/node_share.h"

namespace gaccd {
namespace {

const Json* Member(const Json* in, const char* key) {
  return in == nullptr ? nullptr : in->Find(key);
}

// The entry of `file` in a data.json; null: none.
const Json* FindRecord(const Json& data, const std::string& file) {
  for (const char* side : {"train", "eval"}) {
    const Json* arrays = Member(Member(&data, side), "arrays");
    if (arrays == nullptr || arrays->object() == nullptr) continue;
    for (const auto& [key, record] : *arrays->object()) {
      const std::string* const name = record.text("file");
      if (name != nullptr && *name == file) return &record;
    }
  }
  return nullptr;
}

// NumPy's name of the type: "uint16".
std::string NumpyName(StoredType type) {
  const std::string_view name = Name(type);
  const char* kind = name[0] == 'u' ? "uint" : name[0] == 'i' ? "int" : "float";
  return StrCat(kind, name.substr(1));
}

std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Result<std::string> ComputeSha256(std::span<const std::byte> bytes, NodeShare* share) {
  constexpr std::size_t kATick = std::size_t{32} << 20;
  Sha256 digest;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kATick, bytes.size()))) {
    digest.Update(bytes.first(std::min(kATick, bytes.size())));
    if (share != nullptr) GACCD_RETURN_IF_ERROR(share->Tick());
  }
  return Hex(digest.Finish());
}

}  // namespace

std::string DataJsonPath(const std::string& path) { return ParentFolder(path) + "/data.json"; }

std::vector<std::string> PreparedClasses(std::string_view text, const std::string& path) {
  const Json data = Json::Parse(text).value_or(Json());
  const Json* const classes = data.Find("classes");
  if (classes == nullptr || FindRecord(data, FileName(path)) == nullptr) return {};
  return TextsIn(*classes);
}

Status CheckDataJson(const std::string& path, std::string_view text, const Array& array,
                     std::int64_t vocabulary, NodeShare* share) {
  const std::string name = FileName(array.name);
  if (text.find(StrCat('"', name, '"')) == std::string_view::npos) return Status::Ok();
  const Json data = Json::Parse(text).value_or(Json());
  if (data.object() == nullptr) {
    return {ErrorKind::kData, StrCat(path, ": expected a JSON object of at most ", kMaxTextBytes,
                                     " bytes, found something else that names '", name, "'")};
  }
  const Json* const record = FindRecord(data, name);
  if (record == nullptr) return Status::Ok();
  const auto check = [&](const char* what, const Json& found) -> Status {
    const Json* const expected = Member(record, what);
    if (expected == nullptr || *expected == found) return Status::Ok();
    return {ErrorKind::kData, StrCat(array.name, ": does not belong to ", path, ": expected ", what,
                                     " ", expected->Dump(), ", found ", found.Dump(),
                                     "; create both with tools/prepare, or remove data.json")};
  };
  GACCD_RETURN_IF_ERROR(check("shape", Json::Array(array.shape.begin(), array.shape.end())));
  GACCD_RETURN_IF_ERROR(check("dtype", NumpyName(array.type)));
  if (const auto tokens = data.number("vocabulary");
      tokens && *tokens > static_cast<double>(vocabulary)) {
    return {ErrorKind::kData, StrCat(array.name, ": ", path, " has a vocabulary of ",
                                     JsonNumber(*tokens), ", the job one of ", vocabulary)};
  }
  const std::string known = StrCat("prepared ", array.name);
  if (array.file == nullptr || record->Find("sha256") == nullptr ||
      (share != nullptr && share->IsChecked(known))) {
    return Status::Ok();
  }
  GACCD_ASSIGN_OR_RETURN(const std::string digest, ComputeSha256(array.file->bytes(), share));
  GACCD_RETURN_IF_ERROR(check("sha256", digest));
  if (share != nullptr) share->MarkChecked(known);
  return Status::Ok();
}

Status CheckPreparedTokenizer(const std::string& path, std::string_view tokenizer) {
  const std::string from = DataJsonPath(path);
  if (!PathExists(from)) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(const std::string text, ReadStart(from, kMaxTextBytes));
  const Json data = Json::Parse(text).value_or(Json());
  const Json* const expected = data.Find("tokenizer_sha256");
  if (expected == nullptr) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(const std::string found,
                         ComputeSha256(std::as_bytes(std::span(tokenizer)), nullptr));
  if (*expected != Json(found)) {
    return {ErrorKind::kData, StrCat(path, ": does not belong to ", from, ": expected sha256 ",
                                     expected->Dump(), ", found \"", found, '"')};
  }
  const std::string* const model = data.text("for");
  const Json parsed = Json::Parse(tokenizer).value_or(Json());
  const Json* const frame = parsed.Find("post_processor");
  if (model == nullptr || *model != "bert" || (frame != nullptr && !frame->is_null())) {
    return Status::Ok();
  }
  return {ErrorKind::kData, StrCat(path,
                                   ": does not put [CLS] and [SEP] around a text, as the rows "
                                   "of the training have them (an earlier tools/prepare made "
                                   "it); make the data anew with tools/prepare")};
}

Status CheckPrepared(const Array& array, std::int64_t vocabulary, NodeShare* share) {
  const std::string path = DataJsonPath(array.name);
  if (array.file == nullptr || !PathExists(path)) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(const std::string text, ReadStart(path, kMaxTextBytes));
  return CheckDataJson(path, text, array, vocabulary, share);
}

}  // namespace gaccd
