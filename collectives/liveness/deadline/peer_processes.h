// PeerProcesses: watches processes of the same node, so that the death of a rank is detected at
// once and not at a deadline. Uses Linux pidfds: a killed process counts as ended before its parent
// has reaped it, and reused process numbers are not confused. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/base/files.h"

namespace gaccd {

// Identifies a process to its peers. Process numbers are only comparable within one pid namespace.
struct ProcessName {
  std::int64_t pid = 0;
  std::uint64_t pid_namespace = 0;
};
[[nodiscard]] ProcessName ThisProcess();

class PeerProcesses {
 public:
  // Watches a process as number `index`. Returns false if the system cannot (another pid namespace,
  // an old kernel): then its death is only found at the deadline.
  bool Watch(int index, ProcessName process);

  // The indices of ended processes.
  [[nodiscard]] std::vector<int> Ended() const;

 private:
  struct Peer {
    int index = 0;
    FileDescriptor process;
  };
  std::vector<Peer> peers_;
};

}  // namespace gaccd
