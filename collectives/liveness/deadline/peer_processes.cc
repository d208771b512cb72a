#include "collectives/liveness/deadline/peer_processes.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gaccd {

ProcessName ThisProcess() {
  struct stat info {};
  const bool known = stat("/proc/self/ns/pid", &info) == 0;
  return {getpid(), known ? info.st_ino : 0};
}

bool PeerProcesses::Watch(int index, ProcessName process) {
  const ProcessName self = ThisProcess();
  if (process.pid_namespace == 0 || process.pid_namespace != self.pid_namespace) return false;
  const long fd = syscall(SYS_pidfd_open, process.pid, 0);
  if (fd < 0) return false;
  peers_.push_back({index, FileDescriptor(static_cast<int>(fd))});
  return true;
}

std::vector<int> PeerProcesses::Ended() const {
  std::vector<pollfd> polled;
  polled.reserve(peers_.size());
  for (const Peer& peer : peers_) polled.push_back({peer.process.get(), POLLIN, 0});
  std::vector<int> ended;
  if (poll(polled.data(), polled.size(), 0) <= 0) return ended;
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if ((polled[i].revents & POLLIN) != 0) ended.push_back(peers_[i].index);
  }
  return ended;
}

}  // namespace gaccd
