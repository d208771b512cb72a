// Watches processes of the same node, so that a dead rank is known at once and not when a deadline
// passes. Linux pidfds: a killed process counts as ended before its parent has reaped it, and a
// reused process number cannot be mistaken for it. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/base/files.h"

namespace gaccd {

// A process as its peers need to know it. Process numbers only mean the same in one pid namespace.
struct ProcessName {
  std::int64_t pid = 0;
  std::uint64_t pid_namespace = 0;
};
[[nodiscard]] ProcessName ThisProcess();

class PeerProcesses {
 public:
  // Watches a process under the number `index`. False when the system cannot (another pid
  // namespace, an old kernel): then only the deadline finds its death.
  bool Watch(int index, ProcessName process);

  // The indices of those that have ended.
  [[nodiscard]] std::vector<int> Ended() const;

 private:
  struct Peer {
    int index = 0;
    FileDescriptor process;
  };
  std::vector<Peer> peers_;
};

}  // namespace gaccd
