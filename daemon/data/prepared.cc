#include "daemon/data/prepared.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/data/mapped_file.h"
#include "daemon/data/node_share.h"

namespace gaccd {
namespace {

using Json = nlohmann::json;

Result<Json> ReadJson(const std::string& path) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;
  GACCD_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  std::string text(std::min(file.size(), kMostBytes), '\0');
  GACCD_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object()) return parsed;
  return Status(ErrorKind::kData, path + ": expected a JSON object");
}

// What it says of a file; null: nothing.
Json RecordOf(const Json& data, const std::string& file) {
  for (const char* side : {"train", "eval"}) {
    const Json arrays = data.value(Json::json_pointer(StrCat("/", side, "/arrays")), Json());
    for (const Json& record : arrays) {
      if (record.is_object() && record.value("file", Json()) == file) return record;
    }
  }
  return {};
}

// As NumPy calls it: "uint16".
std::string NumpyName(StoredType type) {
  const std::string_view name = Name(type);
  const char* kind = name[0] == 'u' ? "uint" : name[0] == 'i' ? "int" : "float";
  return StrCat(kind, name.substr(1));
}

Result<std::string> DigestOf(std::span<const std::byte> bytes, NodeShare* share) {
  constexpr std::size_t kATick = std::size_t{32} << 20;
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  if (context == nullptr || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) {
    return Status(ErrorKind::kOs, "OpenSSL has no memory for a SHA-256");
  }
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kATick, bytes.size()))) {
    EVP_DigestUpdate(context.get(), bytes.data(), std::min(kATick, bytes.size()));
    if (share != nullptr) GACCD_RETURN_IF_ERROR(share->Tick());
  }
  std::array<unsigned char, 32> digest{};
  unsigned size = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &size);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

Status CheckPrepared(const Array& array, std::int64_t vocabulary, NodeShare* share) {
  const std::string path = FolderOf(array.name) + "/data.json";
  if (array.file == nullptr || !PathExists(path)) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(const Json data, ReadJson(path));
  const Json record = RecordOf(data, array.name.substr(array.name.rfind('/') + 1));
  if (record.is_null()) return Status::Ok();
  const auto differs = [&](std::string_view what, const Json& expected, const Json& found) {
    return Status(ErrorKind::kData, StrCat(array.name, ": does not belong to ", path, ": expected ",
                                           what, " ", expected.dump(), ", found ", found.dump()));
  };
  const auto check = [&](const char* what, const Json& found) -> Status {
    const Json expected = record.value(what, found);
    return expected == found ? Status::Ok() : differs(what, expected, found);
  };
  GACCD_RETURN_IF_ERROR(check("shape", array.shape));
  GACCD_RETURN_IF_ERROR(check("dtype", NumpyName(array.type)));
  if (const Json tokens = data.value("vocabulary", Json(vocabulary)); tokens > vocabulary) {
    return {ErrorKind::kData, StrCat(array.name, ": ", path, " has a vocabulary of ", tokens.dump(),
                                     ", the job one of ", vocabulary)};
  }
  const std::string known = StrCat("prepared ", array.name);
  if (!record.contains("sha256") || (share != nullptr && share->IsFinite(known))) {
    return Status::Ok();
  }
  GACCD_ASSIGN_OR_RETURN(const std::string digest, DigestOf(array.file->bytes(), share));
  GACCD_RETURN_IF_ERROR(check("sha256", digest));
  if (share != nullptr) share->MarkFinite(known);
  return Status::Ok();
}

}  // namespace gaccd
