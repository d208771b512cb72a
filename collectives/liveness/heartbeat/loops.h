// The loops of the heartbeat's thread: the hub on rank 0, a member on all other ranks.
#pragma once

#include <string>
#include <vector>

#include "collectives/liveness/heartbeat/connection.h"
#include "collectives/liveness/heartbeat/heartbeat.h"

namespace gaccd::heartbeat {

struct HubAddress {
  std::vector<std::string> addresses;  // tried in this order
  std::uint16_t port = 0;
  Key secret{};
};

// Addresses of the hub for a member on another machine: without those that the member's machine has
// too (loopback, a container bridge), where a different process could answer. All of them if no
// others are left: tests run many nodes on one machine.
[[nodiscard]] std::vector<std::string> WithoutLocalAddresses(std::vector<std::string> offered,
                                                             const std::vector<std::string>& own);

// The error if ranks could not reach the hub: kConfig if the hub has no address for other nodes, so
// that the job is not requeued to fail again; otherwise `status`.
[[nodiscard]] Status ExplainAbsence(Status status, const std::vector<std::string>& offered,
                                    int nodes);

struct LoopParts {
  HeartbeatShared& shared;
  HeartbeatOptions options;
  Heartbeat::OnLost on_lost;
  int rank = 0;
  int world = 1;
};

// Run until shared.stop is set. Report to shared.Joined() when connected.
void RunHub(const LoopParts& parts, Listener listener, const Key& secret);
void RunMember(const LoopParts& parts, const HubAddress& hub);

// Ranks found lost within this time after the first one are independent losses: no rank exits that
// fast because of another one. The last signs of life of ranks that fall silent at the same time
// differ by up to one beat.
inline constexpr std::chrono::milliseconds kConcurrentLoss{200};
inline constexpr std::chrono::milliseconds kConcurrentSilence{350};

// The period of both loops.
inline constexpr std::chrono::milliseconds kTick{50};

}  // namespace gaccd::heartbeat
