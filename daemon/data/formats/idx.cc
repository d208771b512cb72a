#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <utility>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "daemon/data/formats/array.h"
#include "daemon/data/formats/gzip.h"
#include "daemon/data/mapped_file.h"
#include "daemon/data/node_share.h"

namespace gaccd {
namespace {

constexpr std::size_t kPrefixBytes = 4;
constexpr std::size_t kMaxRank = 8;
constexpr int kTypeU8 = 0x08;

std::string_view TypeName(int code) {
  switch (code) {
    case 0x09:
      return "signed byte";
    case 0x0B:
      return "short";
    case 0x0C:
      return "int";
    case 0x0D:
      return "float";
    case 0x0E:
      return "double";
    default:
      return "unknown";
  }
}

Status Truncated(const std::string& name, std::string_view part, std::int64_t expected,
                 std::size_t found) {
  return {ErrorKind::kData,
          StrCat(name, ": truncated: expected ", expected, " bytes of ", part, ", found ", found)};
}

// Returns the number of dimensions.
Result<std::size_t> ParsePrefix(const std::string& name,
                                std::span<const std::byte, kPrefixBytes> prefix) {
  std::array<int, kPrefixBytes> value{};
  for (std::size_t i = 0; i < kPrefixBytes; ++i) value[i] = std::to_integer<int>(prefix[i]);
  if (value[0] != 0 || value[1] != 0) {
    return Status(ErrorKind::kData,
                  StrCat(name, ": not an IDX file: expected it to begin with bytes 0 0, found ",
                         value[0], " ", value[1]));
  }
  if (value[2] != kTypeU8) {
    return Status(ErrorKind::kData, StrCat(name,
                                           ": expected IDX element type 8 (unsigned byte), "
                                           "found ",
                                           value[2], " (", TypeName(value[2]), ")"));
  }
  if (value[3] < 1 || value[3] > static_cast<int>(kMaxRank)) {
    return Status(ErrorKind::kData,
                  StrCat(name, ": expected 1 to ", kMaxRank, " IDX dimensions, found ", value[3]));
  }
  return static_cast<std::size_t>(value[3]);
}

Shape ParseDims(std::span<const std::byte> bytes) {
  Shape shape(bytes.size() / 4);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    shape[i / 4] = shape[i / 4] * 256 + std::to_integer<std::int64_t>(bytes[i]);
  }
  return shape;
}

Result<Array> DecodePlain(const std::string& name, std::span<const std::byte> file) {
  if (file.size() < kPrefixBytes) {
    return Truncated(name, "header", kPrefixBytes, file.size());
  }
  GACCD_ASSIGN_OR_RETURN(const std::size_t rank, ParsePrefix(name, file.first<kPrefixBytes>()));
  const std::size_t header = kPrefixBytes + 4 * rank;
  if (file.size() < header) {
    return Truncated(name, "header", static_cast<std::int64_t>(header), file.size());
  }
  Array array;
  array.name = name;
  array.shape = ParseDims(file.subspan(kPrefixBytes, 4 * rank));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t bytes, ArrayBytes(name, array.shape, StoredType::kU8));
  array.data = file.subspan(header);
  if (array.data.size() != static_cast<std::size_t>(bytes)) {
    return Status(ErrorKind::kData,
                  StrCat(name, ": expected ", bytes, " bytes after the header, for shape ",
                         ToString(array.shape), ", found ", array.data.size()));
  }
  return array;
}

// Reads exactly out.size() bytes.
Status ReadAll(const std::string& name, GzipReader& reader, std::string_view part,
               std::span<std::byte> out) {
  GACCD_ASSIGN_OR_RETURN(const std::size_t found, reader.Read(out));
  if (found == out.size()) return Status::Ok();
  return Truncated(name, part, static_cast<std::int64_t>(out.size()), found);
}

// Large pages reduce TLB misses of random reads. Null if out of memory.
std::shared_ptr<std::byte[]> LargePages(std::size_t bytes) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  const std::size_t alignment = bytes < kPage ? 64 : kPage;
  const std::size_t rounded = (bytes / alignment + 1) * alignment;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
  // Only a hint: without it, reading is slower.
  if (memory != nullptr && bytes >= kPage) (void)madvise(memory, rounded, MADV_HUGEPAGE);
  return {memory, std::free};
}

// Memory for header and data of a file: shared by the node, or of this process.
Result<SharedBytes> MemoryToUnpack(const std::string& name, std::span<const std::byte> header,
                                   std::size_t data_bytes, NodeShare* share) {
  const std::size_t bytes = header.size() + data_bytes;
  std::optional<SharedBytes> memory;
  if (share != nullptr) memory = share->Reserve(name, bytes);
  if (!memory) {
    std::shared_ptr<std::byte[]> own = LargePages(bytes);
    if (own == nullptr) {
      return NoMemory(StrCat("the unpacked '", name, "'"), bytes);
    }
    memory = {.bytes = {own.get(), bytes}, .owner = own};
  }
  std::ranges::copy(header, memory->bytes.begin());
  return *std::move(memory);
}

// ReadAll() for the data, in pieces with a tick each.
Status Unpack(const std::string& name, GzipReader& reader, std::span<std::byte> data,
              const NodeShare* share) {
  constexpr std::size_t kPiece = std::size_t{64} << 20;
  for (std::size_t at = 0; at < data.size(); at += kPiece) {
    const auto piece = data.subspan(at, std::min(kPiece, data.size() - at));
    GACCD_ASSIGN_OR_RETURN(const std::size_t found, reader.Read(piece));
    if (found < piece.size()) {
      return Truncated(name, "data", static_cast<std::int64_t>(data.size()), at + found);
    }
    if (share != nullptr) GACCD_RETURN_IF_ERROR(share->Tick());
  }
  return Status::Ok();
}

Result<Array> DecodeGzip(const std::string& name, std::span<const std::byte> file,
                         NodeShare* share) {
  GzipReader reader(name, file);
  std::array<std::byte, kPrefixBytes + 4 * kMaxRank> header{};
  const std::span<std::byte> head(header);
  GACCD_RETURN_IF_ERROR(ReadAll(name, reader, "header", head.first(kPrefixBytes)));
  GACCD_ASSIGN_OR_RETURN(const std::size_t rank, ParsePrefix(name, head.first<kPrefixBytes>()));
  const std::span<std::byte> dims = head.subspan(kPrefixBytes, 4 * rank);
  GACCD_RETURN_IF_ERROR(ReadAll(name, reader, "header", dims));

  Array array;
  array.name = name;
  array.shape = ParseDims(dims);
  GACCD_ASSIGN_OR_RETURN(const std::int64_t bytes, ArrayBytes(name, array.shape, StoredType::kU8));
  const auto promised = static_cast<std::size_t>(bytes);
  if (promised / kMaxDeflateRatio > file.size()) {
    return Status(ErrorKind::kData, StrCat(name, ": truncated: shape ", ToString(array.shape),
                                           " needs ", promised, " bytes, found ", file.size(),
                                           " compressed bytes, which can hold at most ",
                                           file.size() * kMaxDeflateRatio));
  }
  const std::span<std::byte> begin = head.first(kPrefixBytes + dims.size());
  GACCD_ASSIGN_OR_RETURN(SharedBytes memory, MemoryToUnpack(name, begin, promised, share));
  const std::span<std::byte> data = memory.bytes.subspan(begin.size());
  GACCD_RETURN_IF_ERROR(Unpack(name, reader, data, share));
  // There must be no further byte; reading it also verifies the checksum at the end.
  std::array<std::byte, 1> beyond{};
  GACCD_ASSIGN_OR_RETURN(const std::size_t more, reader.Read(beyond));
  if (more != 0) {
    return Status(ErrorKind::kData, StrCat(name, ": expected ", promised,
                                           " decompressed bytes after the header, for shape ",
                                           ToString(array.shape), ", found more"));
  }
  if (share != nullptr) share->Publish(name);
  array.data = data;
  array.owner = std::move(memory.owner);
  return array;
}

}  // namespace

Result<Array> DecodeIdx(const std::string& name, std::span<const std::byte> file,
                        NodeShare* share) {
  return IsGzip(file) ? DecodeGzip(name, file, share) : DecodePlain(name, file);
}

Result<Array> LoadIdx(const std::string& path, NodeShare* share) {
  if (auto unpacked = share == nullptr ? std::nullopt : share->Find(path)) {
    GACCD_ASSIGN_OR_RETURN(Array array, DecodePlain(path, unpacked->bytes));
    array.owner = std::move(unpacked->owner);
    return array;
  }
  GACCD_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  GACCD_ASSIGN_OR_RETURN(Array array, DecodeIdx(path, file->bytes(), share));
  if (array.owner == nullptr) {  // not unpacked into memory
    array.owner = file;
    array.file = std::move(file);
  }
  return array;
}

}  // namespace gaccd
