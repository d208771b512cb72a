// The messages of the heartbeat channel: 96 bytes, fixed layout, little-endian, authenticated.
//
//   bytes 0..63   body: magic, type, rank, number, then the fields of the type
//   bytes 64..95  HMAC-SHA256 of direction and body
//
// Keys: the hello is signed with a secret of the run, created by rank 0 and sent over the
// communicator; the welcome with a key derived from the hello's nonce; later frames with the key of
// the connection, derived from both nonces, so that frames recorded from other connections are
// rejected. Numbers increase, so that no frame is accepted twice. Pure functions, thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/base/result.h"
#include "collectives/liveness/deadline/missing.h"

namespace gaccd::heartbeat {

// Activity of the main thread of a rank. kLoad: waits for data, or prepares
// micro-batches of another size.
enum class Phase : std::uint8_t { kStart, kCompute, kReduce, kEvaluate, kSave, kLoad, kEnd };
[[nodiscard]] std::string_view Name(Phase phase);  // "start", "compute", ...

struct Progress {
  Phase phase = Phase::kStart;
  std::uint32_t micro_step = 0;        // in the update, from 0
  std::uint64_t update = 0;            // updates finished
  std::uint32_t median_update_ms = 0;  // over this rank's last updates; 0: not known yet
  // Total time the main thread was ready to run but had no core, since the start of the process.
  std::uint32_t starved_ms = 0;
  std::uint32_t memory_kib = 0;  // resident, without mapped files; 0: not known

  bool operator==(const Progress&) const = default;
};

enum class FrameType : std::uint8_t { kHello = 1, kWelcome, kBeat, kGoodbye, kLost };
enum class Direction : std::uint8_t { kToHub, kFromHub };

using Key = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 16>;

struct Frame {
  FrameType type = FrameType::kBeat;
  std::int32_t rank = 0;     // the sender; kLost: the lost rank
  std::uint64_t number = 0;  // kBeat, kGoodbye, kLost: counts the frames of this direction from 1
  Nonce nonce{};             // kHello, kWelcome
  Progress progress;         // kBeat; kLost: the last known
  Absence absence = Absence::kEnded;  // kLost
  std::uint32_t silent_ms = 0;        // kLost: how long it had been silent

  bool operator==(const Frame&) const = default;
};

inline constexpr std::size_t kFrameBytes = 96;
using WireFrame = std::array<std::byte, kFrameBytes>;

// If OpenSSL cannot sign, the frame has no signature and will be rejected.
[[nodiscard]] WireFrame Encode(const Frame& frame, Direction direction, const Key& key);

// kUnavailable if the signature, the magic or a value is wrong, kOs if it cannot be checked.
// Constant time in the signature.
[[nodiscard]] Result<Frame> Decode(const WireFrame& wire, Direction direction, const Key& key);

// kOs if OpenSSL cannot sign.
[[nodiscard]] Result<Key> ConnectionKey(const Key& secret, std::int32_t rank, const Nonce& client,
                                        const Nonce& hub);
// Key of the welcome that answers a hello of `rank` with nonce `client`.
[[nodiscard]] Result<Key> WelcomeKey(const Key& secret, std::int32_t rank, const Nonce& client);

// Random bytes from the kernel. kOs on failure.
Status FillRandomBytes(std::span<std::byte> bytes);

}  // namespace gaccd::heartbeat
