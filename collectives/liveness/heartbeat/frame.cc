#include "collectives/liveness/heartbeat/frame.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "collectives/base/strings.h"

namespace gaccd::heartbeat {
namespace {

constexpr std::uint32_t kMagic = 0x31424847;  // "GHB1"
constexpr std::size_t kBodyBytes = 64;
constexpr std::size_t kSignatureBytes = 32;
static_assert(kBodyBytes + kSignatureBytes == kFrameBytes);

// Reads or writes the fields in order; both share one list of fields.
class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}
  template <typename T>
  void Field(T value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }

 private:
  std::byte* at_;
};

class Reader {
 public:
  explicit Reader(const std::byte* at) : at_(at) {}
  template <typename T>
  void Field(T& value) {
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
  }

 private:
  const std::byte* at_;
};

// `Frame` is const for the writer. All supported machines are little-endian.
template <typename Coder, typename AnyFrame>
void Fields(Coder& coder, AnyFrame& frame) {
  coder.Field(frame.type);
  coder.Field(frame.progress.phase);
  coder.Field(frame.absence);
  coder.Field(frame.rank);
  coder.Field(frame.number);
  coder.Field(frame.nonce);
  coder.Field(frame.progress.micro_step);
  coder.Field(frame.progress.update);
  coder.Field(frame.progress.median_update_ms);
  coder.Field(frame.progress.starved_ms);
  coder.Field(frame.silent_ms);
  coder.Field(frame.progress.memory_kib);
}

using Signature = std::array<std::byte, kSignatureBytes>;

Result<Signature> Sign(const Key& key, std::span<const std::byte> parts) {
  Signature signature{};
  unsigned length = kSignatureBytes;
  // Must precede other uses of OpenSSL: no clean-up at exit, as threads may still use it.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  const auto* const made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                reinterpret_cast<const unsigned char*>(parts.data()), parts.size(),
                                reinterpret_cast<unsigned char*>(signature.data()), &length);
  if (made != nullptr && length == kSignatureBytes) return signature;
  // A constant instead would be a signature that anyone can produce.
  return Status(ErrorKind::kOs, "heartbeat: OpenSSL cannot make an HMAC-SHA256");
}

Result<Signature> SignBody(const WireFrame& wire, Direction direction, const Key& key) {
  std::array<std::byte, kBodyBytes + 1> text;
  text[0] = static_cast<std::byte>(direction);
  std::memcpy(&text[1], wire.data(), kBodyBytes);
  return Sign(key, text);
}

bool InRange(const Frame& frame) {
  return frame.type >= FrameType::kHello && frame.type <= FrameType::kLost &&
         frame.progress.phase <= Phase::kEnd && frame.absence <= Absence::kGaveUp &&
         frame.rank >= 0;
}

}  // namespace

std::string_view Name(Phase phase) {
  switch (phase) {
    case Phase::kStart:
      return "start";
    case Phase::kCompute:
      return "compute";
    case Phase::kReduce:
      return "reduce";
    case Phase::kEvaluate:
      return "evaluate";
    case Phase::kSave:
      return "save";
    case Phase::kLoad:
      return "load";
    case Phase::kEnd:
      return "end";
  }
  return "?";
}

WireFrame Encode(const Frame& frame, Direction direction, const Key& key) {
  WireFrame wire{};
  Writer writer(wire.data());
  writer.Field(kMagic);
  Fields(writer, frame);
  const auto signature = SignBody(wire, direction, key);
  if (signature.ok()) std::memcpy(wire.data() + kBodyBytes, signature->data(), kSignatureBytes);
  return wire;
}

Result<Frame> Decode(const WireFrame& wire, Direction direction, const Key& key) {
  GACCD_ASSIGN_OR_RETURN(const Signature expected, SignBody(wire, direction, key));
  if (CRYPTO_memcmp(expected.data(), wire.data() + kBodyBytes, kSignatureBytes) != 0) {
    return Status(ErrorKind::kUnavailable, "heartbeat: a message with a wrong signature");
  }
  Frame frame;
  std::uint32_t magic = 0;
  Reader reader(wire.data());
  reader.Field(magic);
  Fields(reader, frame);
  if (magic != kMagic || !InRange(frame)) {
    return Status(ErrorKind::kUnavailable, "heartbeat: a message of another version");
  }
  return frame;
}

Result<Key> ConnectionKey(const Key& secret, std::int32_t rank, const Nonce& client,
                          const Nonce& hub) {
  std::array<std::byte, sizeof rank + 2 * sizeof(Nonce)> text;
  Writer writer(text.data());
  writer.Field(rank);
  writer.Field(client);
  writer.Field(hub);
  return Sign(secret, text);
}

Result<Key> WelcomeKey(const Key& secret, std::int32_t rank, const Nonce& client) {
  std::array<std::byte, sizeof rank + sizeof(Nonce)> text;  // shorter than that of ConnectionKey()
  Writer writer(text.data());
  writer.Field(rank);
  writer.Field(client);
  return Sign(secret, text);
}

Status FillRandomBytes(std::span<std::byte> bytes) {
  const ssize_t filled = getrandom(bytes.data(), bytes.size(), 0);
  if (filled == static_cast<ssize_t>(bytes.size())) return Status::Ok();
  return {ErrorKind::kOs, StrCat("getrandom: wanted ", bytes.size(), " bytes, found ", filled, ": ",
                                 std::strerror(errno))};
}

}  // namespace gaccd::heartbeat
