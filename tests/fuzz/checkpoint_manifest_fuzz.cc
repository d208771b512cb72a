// The first byte chooses: 0 = the rest is a manifest file; else the rest is the message inside one,
// framed here with the right length and CRC, which no fuzzer would guess.
#include <algorithm>
#include <cstdint>
#include <string>

#include "daemon/checkpoint/crc32c.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/shard.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace gaccd {
namespace {

void AppendU32(std::uint32_t value, std::string* text) {
  text->append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string Framed(std::string_view message) {
  std::string file = "GACCDMF1";
  AppendU32(static_cast<std::uint32_t>(message.size()), &file);
  file += message;
  AppendU32(Crc32c(std::as_bytes(std::span(file))), &file);
  return file;
}

// What the loader relies on.
void CheckPromises(const Manifest& manifest) {
  FuzzCheck(manifest.plan.has_value() && manifest.plan->world() == manifest.world(),
            "there is a plan for as many ranks as shards");
  FuzzCheck(manifest.world() >= 1 && manifest.world() <= kMaxWorld, "the world is bounded");
  FuzzCheck(!manifest.buffers.empty() && manifest.buffers.size() <= kMaxBuffers,
            "buffers are bounded");
  FuzzCheck(manifest.block_bytes >= 1 && manifest.block_bytes <= kMaxBlockBytes,
            "blocks are bounded");
  std::uint64_t total = 0;
  for (std::int64_t rank : {std::int64_t{0}, manifest.world() - 1}) {
    const ShardIdentity identity = MakeShardIdentity(manifest, rank);
    FuzzCheck(ShardBytes(identity) >= PayloadBytes(identity.buffers, rank, manifest.world()),
              "no size overflows");
    total += ShardBytes(identity);
  }
  FuzzCheck(total < kMaxBufferBytes * kMaxBuffers * 3, "sizes are bounded");
  for (const BufferSpec& buffer : manifest.buffers) {
    const ByteRange last = PartRange(buffer, manifest.world() - 1, manifest.world());
    FuzzCheck(last.offset + last.bytes == buffer.bytes, "parts end with their buffer");
  }
  // Found as its readers find it: by name.
  const auto parameters = std::ranges::find(manifest.buffers, kParametersBuffer, &BufferSpec::name);
  FuzzCheck(parameters != manifest.buffers.end() && !parameters->per_rank,
            "there is one buffer of parameters");
  for (const ParameterRecord& parameter : manifest.parameters) {
    FuzzCheck(parameter.offset >= 0 &&
                  static_cast<std::uint64_t>(parameter.offset + Elements(parameter.shape)) *
                          sizeof(float) <=
                      parameters->bytes,
              "parameters lie inside their buffer");
  }
}

}  // namespace
}  // namespace gaccd

int gaccd::FuzzCheckpointManifest(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto manifest = DecodeManifest("input", data[0] == 0 ? std::string(rest) : Framed(rest));
  if (!manifest.ok()) return 0;
  CheckPromises(*manifest);
  const std::string again = EncodeManifest(*manifest);
  const auto twice = DecodeManifest("again", again);
  FuzzCheck(twice.ok(), "a manifest we write can be read");
  FuzzCheck(EncodeManifest(*twice) == again, "and is the same");
  return 0;
}
