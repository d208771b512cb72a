// NcclBoard: the state that the ranks of one node share about their device collectives, in memory
// that they share, so that the one that is missing has a name. Every process writes one line and
// reads those of the others; which costs nothing while all goes well.
//
// A line is a memory file of its process, found by the others under /proc. Where that is not
// allowed, that rank is unknown. Publish functions belong to one thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/liveness/deadline/missing.h"
#include "collectives/liveness/deadline/peer_processes.h"

namespace gaccd {

class NcclBoard {
 public:
  // A board of one line, this process's.
  NcclBoard();

  // The file descriptor that others look for in this process; -1: this rank is unknown to them.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Adds the line of another rank. REQUIRES: on this node.
  void Watch(int rank, ProcessName process, int fd);

  void PublishEntry(Entry entry);  // the newest collective that this rank has entered
  void PublishAlive();
  void PublishFailure();

  [[nodiscard]] std::vector<int> GaveUp() const;  // ranks
  // Who keeps a collective, entered `waited` ago, from its end: those that did not enter it and
  // those without a sign of life, both for `stalled_after`; if there are none, those that gave up.
  [[nodiscard]] std::vector<MissingRank> FindMissing(Entry entry, std::chrono::nanoseconds waited,
                                                     std::chrono::milliseconds stalled_after) const;
  // Ranks that it can see, its own not counted.
  [[nodiscard]] int known() const { return static_cast<int>(others_.size()); }

 private:
  struct Line {
    std::atomic<std::uint64_t> entry;    // Pack(Entry)
    std::atomic<std::int64_t> alive_ms;  // BoardMillis()
    std::atomic<std::uint64_t> gave_up;
  };
  struct Unmap {
    void operator()(Line* line) const;
  };
  using MappedLine = std::unique_ptr<Line, Unmap>;
  struct Other {
    int rank = 0;
    MappedLine line;  // read only
  };
  static MappedLine Map(int fd, int protection);

  FileDescriptor fd_;
  MappedLine own_;
  std::vector<Other> others_;
};

}  // namespace gaccd
