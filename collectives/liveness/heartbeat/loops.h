// The two loops of the heartbeat's thread: the hub on rank 0, a member on every other rank.
#pragma once

#include <string>
#include <vector>

#include "collectives/liveness/heartbeat/heartbeat.h"
#include "collectives/liveness/heartbeat/socket.h"

namespace gaccd::heartbeat {

struct HubAddress {
  std::vector<std::string> addresses;  // tried in this order
  std::uint16_t port = 0;
  Key secret{};
};

// For a member on another machine than rank 0: an address that its own machine has too (loopback, a
// bridge of containers) is not rank 0, but where a stranger could answer. All of them when there
// are no others: one machine plays many.
[[nodiscard]] std::vector<std::string> WithoutOwn(std::vector<std::string> offered,
                                                  const std::vector<std::string>& own);

// What is said when ranks did not find the hub: kConfig where it has no address for the other
// nodes, so that a job is not requeued for what will be so again; else `status`.
[[nodiscard]] Status ExplainAbsence(Status status, const std::vector<std::string>& offered,
                                    int nodes);

struct LoopParts {
  HeartbeatShared& shared;
  HeartbeatOptions options;
  Heartbeat::OnLost on_lost;
  int rank = 0;
  int world = 1;
};

// Runs until shared.stop. Reports the joining to shared.Joined().
void RunHub(const LoopParts& parts, Listener listener, const Key& secret);
void RunMember(const LoopParts& parts, const HubAddress& hub);

// Ranks that are found lost within so long of the first one are lost by themselves: nobody leaves
// faster because of another one. The last signs of life of ranks that fall silent at the same
// moment are up to a beat apart.
inline constexpr std::chrono::milliseconds kTogether{200};
inline constexpr std::chrono::milliseconds kTogetherSilent{350};

// The pace of both loops.
inline constexpr std::chrono::milliseconds kTick{50};

}  // namespace gaccd::heartbeat
