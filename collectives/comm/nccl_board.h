// NcclBoard: state of device collectives shared by the ranks of one node, so that missing ranks can
// be named. Every process writes one line in shared memory and reads the others'; this costs
// nothing while there is no failure.
//
// A line is a memory file of its process, opened by the others through /proc. If that is not
// permitted, that rank is unknown. Publish functions are used by one thread at a time.
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
  // A board with one line, for this process.
  NcclBoard();

  // The descriptor that other processes open; -1: this rank is unknown to them.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Adds the line of another rank. REQUIRES: it is on this node.
  void Watch(int rank, ProcessName process, int fd);

  void PublishEntry(Entry entry);  // the newest collective entered by this rank
  void PublishAlive();
  void PublishFailure();

  [[nodiscard]] std::vector<int> GaveUp() const;  // ranks that gave up
  // The ranks that prevent a collective, entered `waited` ago, from completing: those that have not
  // entered it and those without a sign of life, both for `stalled_after`; if there are none, those
  // that gave up.
  [[nodiscard]] std::vector<MissingRank> FindMissing(Entry entry, std::chrono::nanoseconds waited,
                                                     std::chrono::milliseconds stalled_after) const;
  // Number of other ranks with a line.
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
    MappedLine line;  // read-only
  };
  static MappedLine Map(int fd, int protection);

  FileDescriptor fd_;
  MappedLine own_;
  std::vector<Other> others_;
};

}  // namespace gaccd
