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

// Null where `in` is no object or has no such member.
Json Member(const Json& in, const char* key) {
  const auto found = in.is_object() ? in.find(key) : in.end();
  return found == in.end() ? Json() : *found;
}

// What it says of a file; null: nothing.
Json RecordOf(const Json& data, const std::string& file) {
  for (const char* side : {"train", "eval"}) {
    const Json arrays = Member(Member(data, side), "arrays");
    for (const Json& record : arrays) {
      if (Member(record, "file") == file) return record;
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

Status CheckDataJson(const std::string& path, std::string_view text, const Array& array,
                     std::int64_t vocabulary, NodeShare* share) {
  const Json data = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!data.is_object()) return {ErrorKind::kData, path + ": expected a JSON object"};
  const Json record = RecordOf(data, array.name.substr(array.name.rfind('/') + 1));
  if (record.is_null()) return Status::Ok();
  const auto check = [&](const char* what, const Json& found) -> Status {
    const Json expected = Member(record, what);
    if (expected.is_null() || expected == found) return Status::Ok();
    return {ErrorKind::kData, StrCat(array.name, ": does not belong to ", path, ": expected ", what,
                                     " ", expected.dump(), ", found ", found.dump(),
                                     "; make both anew with tools/prepare, or remove data.json")};
  };
  GACCD_RETURN_IF_ERROR(check("shape", array.shape));
  GACCD_RETURN_IF_ERROR(check("dtype", NumpyName(array.type)));
  if (const Json tokens = Member(data, "vocabulary"); tokens > vocabulary) {
    return {ErrorKind::kData, StrCat(array.name, ": ", path, " has a vocabulary of ", tokens.dump(),
                                     ", the job one of ", vocabulary)};
  }
  const std::string known = StrCat("prepared ", array.name);
  if (array.file == nullptr || !record.contains("sha256") ||
      (share != nullptr && share->IsFinite(known))) {
    return Status::Ok();
  }
  GACCD_ASSIGN_OR_RETURN(const std::string digest, DigestOf(array.file->bytes(), share));
  GACCD_RETURN_IF_ERROR(check("sha256", digest));
  if (share != nullptr) share->MarkFinite(known);
  return Status::Ok();
}

Status CheckPrepared(const Array& array, std::int64_t vocabulary, NodeShare* share) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;
  const std::string path = FolderOf(array.name) + "/data.json";
  if (array.file == nullptr || !PathExists(path)) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  std::string text(std::min(file.size(), kMostBytes), '\0');
  GACCD_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return CheckDataJson(path, text, array, vocabulary, share);
}

}  // namespace gaccd
