#include "daemon/train/ending.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace gaccd {
namespace {

// A neighbour that gave up was told of the loss; this rank is told a moment later.
constexpr std::chrono::milliseconds kSpreadOfNews{300};

std::optional<CommFailure> FailureOf(const Session& session) {
  if (session.between_gpus) {
    if (auto failure = session.between_gpus->failure()) return failure;
  }
  return session.comm.failure();
}

// Those who gave up have been told of somebody else.
std::vector<int> Culprits(const std::optional<CommFailure>& failure) {
  std::vector<int> ranks;
  if (!failure) return ranks;
  for (const MissingRank& missing : failure->missing) {
    if (missing.absence != Absence::kGaveUp) ranks.push_back(missing.rank);
  }
  return ranks;
}

// By the heartbeat, else by the communicator.
std::vector<int> LostRanks(const Session& session, std::chrono::milliseconds patience) {
  const auto failure = FailureOf(session);
  std::vector<int> ranks = Culprits(failure);
  const auto limit = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (const auto lost = session.peers->lost()) return {lost->rank};
    const bool may_come = failure && ranks.empty() && session.peers->beats();
    if (!may_come || std::chrono::steady_clock::now() >= limit) return ranks;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

Ending Shared(Agreement agreement) {
  return {std::move(agreement.status), true, agreement.speaker};
}

bool PeersAreLost(const Session& session) {
  return session.peers->lost().has_value() || FailureOf(session).has_value();
}

FailureFacts FactsOf(const Status& outcome, const Session& session) {
  FailureFacts facts;
  if (outcome.ok()) return facts;
  for (const int rank : LostRanks(session, kSpreadOfNews)) {
    const std::string& host = session.comm.topology().hosts[static_cast<std::size_t>(rank)];
    facts.suspects.push_back({rank, host});
  }
  const auto lost = session.peers->lost();
  facts.silent = lost && lost->absence == Absence::kSilent;
  if (const auto failure = FailureOf(session)) {
    facts.collective = Name(failure->entry.operation);
    facts.sequence = static_cast<std::int64_t>(failure->entry.sequence);
  }
  return facts;
}

void WaitForSpeaker(const Session& session) {
  constexpr std::chrono::milliseconds kTimeToWrite{700};
  const std::vector<int> lost = LostRanks(session, {});
  const int speaker = std::ranges::count(lost, 0) > 0 ? 1 : 0;
  if (session.comm.rank() != speaker) std::this_thread::sleep_for(kTimeToWrite);
}

}  // namespace gaccd
