// Messages of the heartbeat channel. The first byte is the direction, 64 more are the body, which
// is signed here, as nobody guesses a signature; what follows is a message as a stranger would send
// it.
#include <openssl/hmac.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "collectives/liveness/heartbeat/frame.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace gaccd::heartbeat {
namespace {

constexpr std::size_t kBodyBytes = 64;
constexpr Key kKey{std::byte{7}};

WireFrame Signed(const std::uint8_t* body, Direction direction) {
  unsigned char text[kBodyBytes + 1];
  text[0] = static_cast<unsigned char>(direction);
  std::memcpy(text + 1, body, kBodyBytes);
  WireFrame wire;
  std::memcpy(wire.data(), body, kBodyBytes);
  unsigned int length = 0;
  HMAC(EVP_sha256(), kKey.data(), kKey.size(), text, sizeof text,
       reinterpret_cast<unsigned char*>(wire.data() + kBodyBytes), &length);
  return wire;
}

void Use(const Frame& frame, Direction direction) {
  FuzzCheck(frame.rank >= 0, "a rank is not negative");
  FuzzCheck(Name(frame.progress.phase) != "?", "a phase has a name");
  const auto again = Decode(Encode(frame, direction, kKey), direction, kKey);
  FuzzCheck(again.ok() && *again == frame, "a message reads back as it was");
  const auto other = direction == Direction::kToHub ? Direction::kFromHub : Direction::kToHub;
  FuzzCheck(!Decode(Encode(frame, direction, kKey), other, kKey).ok(),
            "a message cannot be sent back to its sender");
}

}  // namespace
}  // namespace gaccd::heartbeat

int gaccd::FuzzHeartbeatFrame(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd::heartbeat;
  if (size <= kBodyBytes) return 0;
  const Direction direction = (data[0] & 1) == 0 ? Direction::kToHub : Direction::kFromHub;
  const auto frame = Decode(Signed(data + 1, direction), direction, kKey);
  if (frame.ok()) Use(*frame, direction);
  WireFrame wire{};
  std::memcpy(wire.data(), data + 1, std::min(size - 1, wire.size()));
  if (wire == Signed(data + 1, direction)) return 0;
  gaccd::FuzzCheck(!Decode(wire, direction, kKey).ok(), "an unsigned message is refused");
  return 0;
}
