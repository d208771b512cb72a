// ProgressNotifier: reports the phase of this rank to the heartbeat and the crash record, so that a
// stuck rank can be distinguished from a slow one.
#pragma once

#include <cstdint>

#include "collectives/liveness/heartbeat/peer_watch.h"
#include "daemon/rundir/run_reporter.h"

namespace gaccd {

struct ProgressNotifier {
  PeerWatch* peers = nullptr;       // null: no heartbeat
  RunReporter* reporter = nullptr;  // null: no crash record

  void SetPhase(heartbeat::Phase phase, std::int64_t update, std::int64_t micro_step = 0) const {
    if (reporter != nullptr) reporter->SetPhase(heartbeat::Name(phase).data(), micro_step);
    if (peers == nullptr) return;
    peers->SetPhase(phase, static_cast<std::uint64_t>(update),
                    static_cast<std::uint32_t>(micro_step));
  }
};

}  // namespace gaccd
