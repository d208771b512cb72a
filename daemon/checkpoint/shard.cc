#include "daemon/checkpoint/shard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/base/files.h"
#include "collectives/base/hash.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/crc32c.h"

namespace gaccd {
namespace {

constexpr std::string_view kShardMagic = "GACCDSH1";
constexpr std::uint64_t kShardVersion = 1;
constexpr std::size_t kFields = 9;
constexpr std::size_t kCheckedBytes = 8 + kFields * 8;
constexpr std::size_t kHeaderBytes = kCheckedBytes + 8;
constexpr std::size_t kBlockCrcBytes = 4;

constexpr std::array<std::string_view, kFields> kFieldNames = {
    "version",    "block size", "rank",         "world",          "step",
    "micro-step", "epoch",      "payload size", "buffers' digest"};

using Header = std::array<std::byte, kHeaderBytes>;

// The first 8 bytes of the SHA-256 of the list as text.
std::uint64_t BuffersDigest(std::span<const BufferSpec> buffers) {
  std::string text;
  for (const BufferSpec& buffer : buffers) {
    text += StrCat(buffer.name, " ", buffer.bytes, " ", buffer.per_rank, "\n");
  }
  Sha256 sha;
  sha.Update(std::as_bytes(std::span(text)));
  const Sha256Digest digest = sha.Finish();
  std::uint64_t value = 0;
  std::memcpy(&value, digest.data(), sizeof value);
  return value;
}

std::uint64_t PayloadBytes(const ShardIdentity& identity) {
  return PayloadBytes(identity.buffers, identity.rank, identity.world);
}

Header EncodeHeader(const ShardIdentity& identity) {
  const std::array<std::uint64_t, kFields> fields = {
      kShardVersion,
      identity.block_bytes,
      static_cast<std::uint64_t>(identity.rank),
      static_cast<std::uint64_t>(identity.world),
      static_cast<std::uint64_t>(identity.step),
      static_cast<std::uint64_t>(identity.micro_step),
      static_cast<std::uint64_t>(identity.writer_epoch),
      PayloadBytes(identity),
      BuffersDigest(identity.buffers)};
  Header header{};
  std::memcpy(header.data(), kShardMagic.data(), kShardMagic.size());
  std::memcpy(header.data() + kShardMagic.size(), fields.data(), sizeof fields);
  const std::uint32_t crc = Crc32c(std::span(header).first(kCheckedBytes));
  std::memcpy(header.data() + kCheckedBytes, &crc, sizeof crc);
  return header;
}

// The header follows from the identity, so it is compared; the error says where it differs.
Status CheckHeader(const Header& found, const Header& expected) {
  if (found == expected) return Status::Ok();
  if (std::memcmp(found.data(), kShardMagic.data(), kShardMagic.size()) != 0) {
    return BadData("it does not begin with GACCDSH1");
  }
  std::uint32_t crc = 0;
  std::memcpy(&crc, found.data() + kCheckedBytes, sizeof crc);
  if (crc != Crc32c(std::span(found).first(kCheckedBytes))) {
    return BadData("the CRC32C of its header does not match");
  }
  for (std::size_t i = 0; i < kFields; ++i) {
    std::uint64_t ours = 0;
    std::uint64_t theirs = 0;
    std::memcpy(&ours, expected.data() + kShardMagic.size() + 8 * i, sizeof ours);
    std::memcpy(&theirs, found.data() + kShardMagic.size() + 8 * i, sizeof theirs);
    if (ours != theirs) {
      return BadData(StrCat("header: expected ", kFieldNames[i], " ", ours, ", found ", theirs));
    }
  }
  return BadData("header: expected zeros at its end");
}

// The parts as one stream of bytes.
template <typename Byte>
class Stream {
 public:
  explicit Stream(std::span<const std::span<Byte>> parts) : parts_(parts) {}

  // Calls `use` with consecutive pieces of the next `bytes` bytes.
  template <typename Use>
  void Next(std::uint64_t bytes, const Use& use) {
    while (bytes > 0) {
      const std::span<Byte> rest = parts_[part_].subspan(done_);
      if (rest.empty()) {
        ++part_;
        done_ = 0;
        continue;
      }
      const std::size_t size = std::min<std::uint64_t>(bytes, rest.size());
      use(rest.first(size));
      done_ += size;
      bytes -= size;
    }
  }

 private:
  std::span<const std::span<Byte>> parts_;
  std::size_t part_ = 0;
  std::size_t done_ = 0;
};

template <typename Byte>
bool SizesMatch(const ShardIdentity& identity, std::span<const std::span<Byte>> parts) {
  if (parts.size() != identity.buffers.size()) return false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ByteRange range = PartRange(identity.buffers[i], identity.rank, identity.world);
    if (parts[i].size() != range.bytes) return false;
  }
  return true;
}

Status WrongParts() {
  return {ErrorKind::kInternal, "shard: the parts do not have the sizes of their buffers"};
}

Status WriteBlocks(DurableFile& file, const ShardIdentity& identity,
                   std::span<const std::span<const std::byte>> parts, Sha256* sha) {
  std::vector<std::byte> block;
  block.reserve(identity.block_bytes + kBlockCrcBytes);
  Stream<const std::byte> stream(parts);
  for (std::uint64_t rest = PayloadBytes(identity); rest > 0;) {
    const std::uint64_t bytes = std::min(rest, identity.block_bytes);
    block.clear();
    stream.Next(bytes, [&](auto piece) { block.insert(block.end(), piece.begin(), piece.end()); });
    const std::uint32_t crc = Crc32c(block);
    const auto crc_bytes = std::as_bytes(std::span(&crc, 1));
    block.insert(block.end(), crc_bytes.begin(), crc_bytes.end());
    sha->Update(block);
    GACCD_RETURN_IF_ERROR(file.Write(block));
    rest -= bytes;
  }
  return Status::Ok();
}

Status ReadHeader(const ReadAt& read_at, const ShardIdentity& identity, Header* header) {
  GACCD_RETURN_IF_ERROR(read_at(0, *header));
  return CheckHeader(*header, EncodeHeader(identity));
}

// all: a block and its CRC.
Status ReadBlock(const ReadAt& read_at, std::uint64_t offset, std::span<std::byte> all) {
  GACCD_RETURN_IF_ERROR(read_at(offset, all));
  const auto block = all.first(all.size() - kBlockCrcBytes);
  std::uint32_t crc = 0;
  std::memcpy(&crc, all.data() + block.size(), sizeof crc);
  if (crc == Crc32c(block)) return Status::Ok();
  return BadData(StrCat("the CRC32C of the block at byte ", offset, " does not match"));
}

// So that data is read from the disk, not from the page cache: best effort.
void DropCache(const std::string& path) {
  const auto file = OpenFile(path, O_RDONLY);
  if (file.ok()) ::posix_fadvise(file->get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace

ShardIdentity MakeShardIdentity(const Manifest& manifest, std::int64_t rank) {
  return {.rank = rank,
          .world = manifest.world(),
          .step = manifest.cursor.step,
          .micro_step = manifest.cursor.micro_step,
          .writer_epoch = manifest.writer_epoch,
          .block_bytes = manifest.block_bytes,
          .buffers = manifest.buffers};
}

std::string ShardName(std::int64_t rank, std::int64_t world) {
  return Format("shard-%05ld-of-%05ld.bin", rank, world);
}

std::uint64_t ShardBytes(const ShardIdentity& identity) {
  const std::uint64_t payload = PayloadBytes(identity);
  const std::uint64_t blocks = (payload + identity.block_bytes - 1) / identity.block_bytes;
  return kHeaderBytes + payload + blocks * kBlockCrcBytes;
}

Result<ShardRecord> WriteShard(const std::string& path, const ShardIdentity& identity,
                               std::span<const std::span<const std::byte>> parts, unsigned mode) {
  if (!SizesMatch(identity, parts)) return WrongParts();
  if (PathExists(path)) {
    return Status(ErrorKind::kIo, StrCat("'", path, "' already exists: it is never overwritten"));
  }
  GACCD_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path, mode));
  const Header header = EncodeHeader(identity);
  Sha256 sha;
  sha.Update(header);
  GACCD_RETURN_IF_ERROR(file.Write(header));
  GACCD_RETURN_IF_ERROR(WriteBlocks(file, identity, parts, &sha));
  GACCD_RETURN_IF_ERROR(file.Commit());
  const ShardRecord record{.bytes = ShardBytes(identity), .sha256 = sha.Finish()};
  DropCache(path);
  Status again = ReadShardFile(path, identity, &record, {});
  if (again.ok()) return record;
  ::unlink(path.c_str());
  return Status(ErrorKind::kIo, StrCat("what was written reads differently: ", again.message()));
}

Status ReadShard(const ReadAt& read_at, std::uint64_t file_bytes, const ShardIdentity& identity,
                 const ShardRecord* record, std::span<const std::span<std::byte>> parts) {
  if (!parts.empty() && !SizesMatch(identity, parts)) return WrongParts();
  const std::uint64_t expected = ShardBytes(identity);
  if (file_bytes != expected || (record != nullptr && record->bytes != expected)) {
    return BadData(
        StrCat("expected ", expected, " bytes, found ", file_bytes,
               record == nullptr ? "" : StrCat(" and ", record->bytes, " in the manifest")));
  }
  Header header{};
  GACCD_RETURN_IF_ERROR(ReadHeader(read_at, identity, &header));
  Sha256 sha;
  sha.Update(header);
  const std::uint64_t payload = PayloadBytes(identity);
  std::vector<std::byte> block(std::min(identity.block_bytes, payload) + kBlockCrcBytes);
  Stream<std::byte> stream(parts);
  std::uint64_t offset = kHeaderBytes;
  for (std::uint64_t rest = payload; rest > 0;) {
    const std::uint64_t bytes = std::min(rest, identity.block_bytes);
    const std::span<std::byte> all = std::span(block).first(bytes + kBlockCrcBytes);
    GACCD_RETURN_IF_ERROR(ReadBlock(read_at, offset, all));
    sha.Update(all);
    if (!parts.empty()) {
      const std::byte* from = all.data();
      stream.Next(bytes, [&](auto piece) {
        std::memcpy(piece.data(), from, piece.size());
        from += piece.size();
      });
    }
    offset += bytes + kBlockCrcBytes;
    rest -= bytes;
  }
  if (record == nullptr) return Status::Ok();
  const Sha256Digest found = sha.Finish();
  if (found == record->sha256) return Status::Ok();
  return BadData(StrCat("expected SHA-256 ", Hex(record->sha256), ", found ", Hex(found),
                        ": it is a shard of another checkpoint or was changed"));
}

Status ReadShardFile(const std::string& path, const ShardIdentity& identity,
                     const ShardRecord* record, std::span<const std::span<std::byte>> parts,
                     Ticks* ticks) {
  GACCD_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path, Links::kRefuse));
  const ReadAt read_at = [&file, ticks](std::uint64_t offset, std::span<std::byte> out) {
    return file.ReadAt(offset, out, ticks);
  };
  return ReadShard(read_at, file.size(), identity, record, parts).WithContext(path);
}

Status ReadShardPart(const std::string& path, const ShardIdentity& identity, std::uint64_t first,
                     std::span<std::byte> out, Ticks* ticks) {
  GACCD_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path, Links::kRefuse));
  const ReadAt read_at = [&file, ticks](std::uint64_t offset, std::span<std::byte> bytes) {
    return file.ReadAt(offset, bytes, ticks);
  };
  if (const std::uint64_t expected = ShardBytes(identity); file.size() != expected) {
    return BadData(StrCat(path, ": expected ", expected, " bytes, found ", file.size()));
  }
  Header header{};
  GACCD_RETURN_IF_ERROR(ReadHeader(read_at, identity, &header).WithContext(path));
  const std::uint64_t payload = PayloadBytes(identity);
  std::vector<std::byte> block(std::min(identity.block_bytes, payload) + kBlockCrcBytes);
  while (!out.empty()) {
    const std::uint64_t number = first / identity.block_bytes;
    const std::uint64_t begin = number * identity.block_bytes;
    const std::uint64_t bytes = std::min(identity.block_bytes, payload - begin);
    GACCD_RETURN_IF_ERROR(ReadBlock(read_at, kHeaderBytes + begin + number * kBlockCrcBytes,
                                    std::span(block).first(bytes + kBlockCrcBytes))
                              .WithContext(path));
    const auto piece = std::span(block).subspan(
        first - begin, std::min<std::uint64_t>(begin + bytes - first, out.size()));
    std::ranges::copy(piece, out.begin());
    first += piece.size();
    out = out.subspan(piece.size());
  }
  return Status::Ok();
}

}  // namespace gaccd
