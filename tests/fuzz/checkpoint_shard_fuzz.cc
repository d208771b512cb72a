// The first 8 bytes say what shard is expected: rank, world, step, epoch, block size and the sizes
// of two buffers; the rest is the file.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "daemon/checkpoint/shard.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

int gaccd::FuzzCheckpointShard(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  if (size < 8) return 0;
  ShardIdentity identity{
      .rank = data[0] % (data[1] % 8 + 1),
      .world = data[1] % 8 + 1,
      .step = data[2],
      .writer_epoch = data[3] + 1,
      .block_bytes = data[4] + 1u,
      .buffers = {{"parameters", data[5] * 8u}, {"window", data[6], data[7] > 9}}};
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size)).subspan(8);
  std::vector<std::vector<std::byte>> parts;
  for (const BufferSpec& buffer : identity.buffers) {
    parts.emplace_back(PartRange(buffer, identity.rank, identity.world).bytes);
  }
  const ReadAt read_at = [file](std::uint64_t offset, std::span<std::byte> out) {
    FuzzCheck(offset <= file.size() && out.size() <= file.size() - offset,
              "nothing is read outside of the file");
    if (!out.empty()) std::memcpy(out.data(), file.data() + offset, out.size());
    return Status::Ok();
  };
  const std::vector<std::span<std::byte>> out(parts.begin(), parts.end());
  if (!ReadShard(read_at, file.size(), identity, nullptr, out).ok()) return 0;
  FuzzCheck(file.size() == ShardBytes(identity), "an accepted file has its exact size");
  // The parts are the payload of the blocks, in order.
  std::vector<std::byte> payload;
  for (std::size_t at = 88; at < file.size();) {
    const std::size_t bytes =
        std::min<std::size_t>(identity.block_bytes, file.size() - at - sizeof(std::uint32_t));
    payload.insert(payload.end(), file.begin() + static_cast<std::ptrdiff_t>(at),
                   file.begin() + static_cast<std::ptrdiff_t>(at + bytes));
    at += bytes + sizeof(std::uint32_t);
  }
  std::vector<std::byte> joined;
  for (const auto& part : parts) joined.insert(joined.end(), part.begin(), part.end());
  FuzzCheck(joined == payload, "what is read is what the file has");
  return 0;
}
