#include "collectives/liveness/heartbeat/frame.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <openssl/hmac.h>

namespace {
bool hmac_fails = false;
}

// In place of the library's: it can fail here.
unsigned char* HMAC(const EVP_MD* hash, const void* key, int key_bytes, const unsigned char* text,
                    std::size_t bytes, unsigned char* to, unsigned* to_bytes) {
  static const auto real = reinterpret_cast<decltype(&HMAC)>(dlsym(RTLD_NEXT, "HMAC"));
  return hmac_fails ? nullptr : real(hash, key, key_bytes, text, bytes, to, to_bytes);
}

namespace gaccd::heartbeat {
namespace {

Key SomeKey(int seed) {
  Key key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(seed + 7 * i);
  return key;
}

Frame SomeFrame() {
  return {.type = FrameType::kLost,
          .rank = 239,
          .number = 1ULL << 40,
          .progress = {.phase = Phase::kSave,
                       .micro_step = 12,
                       .update = 1ULL << 33,
                       .median_update_ms = 1500,
                       .starved_ms = 77,
                       .memory_kib = 123'456'789},
          .absence = Absence::kSilent,
          .silent_ms = 5100};
}

TEST(Frame, RoundTrips) {
  const WireFrame wire = Encode(SomeFrame(), Direction::kFromHub, SomeKey(1));
  const auto back = Decode(wire, Direction::kFromHub, SomeKey(1));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, SomeFrame());
}

TEST(Frame, DetectsEveryChangedBit) {
  const WireFrame wire = Encode(SomeFrame(), Direction::kFromHub, SomeKey(1));
  for (std::size_t bit = 0; bit < 8 * kFrameBytes; ++bit) {
    WireFrame changed = wire;
    changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(Decode(changed, Direction::kFromHub, SomeKey(1)).ok()) << "bit " << bit;
  }
}

TEST(Frame, RefusesOtherKeyOrDirection) {
  const WireFrame wire = Encode(SomeFrame(), Direction::kFromHub, SomeKey(1));
  EXPECT_FALSE(Decode(wire, Direction::kFromHub, SomeKey(2)).ok());
  EXPECT_FALSE(Decode(wire, Direction::kToHub, SomeKey(1)).ok());
}

TEST(Frame, RefusesSignedValuesOutOfRange) {
  Frame frame = SomeFrame();
  frame.rank = -1;
  EXPECT_FALSE(
      Decode(Encode(frame, Direction::kToHub, SomeKey(1)), Direction::kToHub, SomeKey(1)).ok());
  frame = SomeFrame();
  frame.progress.phase = static_cast<Phase>(99);
  EXPECT_FALSE(
      Decode(Encode(frame, Direction::kToHub, SomeKey(1)), Direction::kToHub, SomeKey(1)).ok());
}

TEST(Frame, ConnectionKeysDependOnEveryInput) {
  const Nonce a{};
  Nonce b{};
  b[15] = std::byte{1};
  const Key key = *ConnectionKey(SomeKey(1), 3, a, b);
  EXPECT_NE(key, *ConnectionKey(SomeKey(2), 3, a, b));
  EXPECT_NE(key, *ConnectionKey(SomeKey(1), 4, a, b));
  EXPECT_NE(key, *ConnectionKey(SomeKey(1), 3, b, a));
  EXPECT_NE(key, *ConnectionKey(SomeKey(1), 3, a, a));
  const Key greeting = *WelcomeKey(SomeKey(1), 3, a);
  EXPECT_NE(greeting, *WelcomeKey(SomeKey(1), 3, b));
  EXPECT_NE(greeting, *WelcomeKey(SomeKey(1), 4, a));
  EXPECT_NE(greeting, *ConnectionKey(SomeKey(1), 3, a, Nonce{}));
}

// A crypto library that fails (a policy, no memory) must not make all signatures equal.
TEST(Frame, RefusesFramesWithoutHmac) {
  const WireFrame good = Encode(SomeFrame(), Direction::kToHub, SomeKey(1));
  hmac_fails = true;
  const WireFrame wire = Encode(SomeFrame(), Direction::kToHub, SomeKey(1));
  EXPECT_FALSE(Decode(wire, Direction::kToHub, SomeKey(1)).ok());
  EXPECT_FALSE(Decode(good, Direction::kToHub, SomeKey(1)).ok());
  EXPECT_FALSE(ConnectionKey(SomeKey(1), 3, {}, {}).ok());
  EXPECT_FALSE(WelcomeKey(SomeKey(1), 3, {}).ok());
  hmac_fails = false;
  EXPECT_FALSE(Decode(wire, Direction::kToHub, SomeKey(1)).ok());
  EXPECT_TRUE(Decode(good, Direction::kToHub, SomeKey(1)).ok());
}

TEST(Frame, RandomBytesDiffer) {
  Nonce one{};
  Nonce two{};
  ASSERT_TRUE(FillRandomBytes(one).ok());
  ASSERT_TRUE(FillRandomBytes(two).ok());
  EXPECT_NE(one, two);
}

}  // namespace
}  // namespace gaccd::heartbeat
