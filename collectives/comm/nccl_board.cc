#include "collectives/comm/nccl_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "collectives/base/strings.h"
#include "collectives/liveness/deadline/board.h"

namespace gaccd {
namespace {

constexpr std::size_t kBytes = 4096;

void* Map(int fd, int protection) {
  void* const memory = mmap(nullptr, kBytes, protection, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

NcclBoard::NcclBoard() : fd_(memfd_create("gaccd-nccl-board", MFD_CLOEXEC)) {
  if (fd_ < 0) return;
  if (ftruncate(fd_, kBytes) == 0) {
    own_ = static_cast<Line*>(Map(fd_, PROT_READ | PROT_WRITE));  // zeros are a valid line
  }
  if (own_ == nullptr) close(std::exchange(fd_, -1));
  PublishAlive();
}

NcclBoard::NcclBoard(NcclBoard&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      own_(std::exchange(other.own_, nullptr)),
      others_(std::exchange(other.others_, {})) {}

NcclBoard& NcclBoard::operator=(NcclBoard&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(own_, other.own_);
  others_.swap(other.others_);
  return *this;
}

NcclBoard::~NcclBoard() {
  for (const Other& other : others_) munmap(const_cast<Line*>(other.line), kBytes);
  if (own_ != nullptr) munmap(own_, kBytes);
  if (fd_ >= 0) close(fd_);
}

void NcclBoard::Watch(int rank, ProcessName process, int fd) {
  if (fd < 0 || process.pid_namespace != ThisProcess().pid_namespace) return;
  const std::string path = StrCat("/proc/", process.pid, "/fd/", fd);
  const int opened = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (opened < 0) return;
  const auto* line = static_cast<const Line*>(Map(opened, PROT_READ));
  close(opened);
  if (line != nullptr) others_.push_back({rank, line});
}

void NcclBoard::PublishEntry(Entry entry) {
  if (own_ != nullptr) own_->entry.store(Pack(entry), std::memory_order_release);
}

void NcclBoard::PublishAlive() {
  if (own_ != nullptr) own_->alive_ms.store(BoardMillis(), std::memory_order_relaxed);
}

void NcclBoard::PublishFailure() {
  if (own_ != nullptr) own_->gave_up.store(1);
}

std::vector<int> NcclBoard::GaveUp() const {
  std::vector<int> ranks;
  for (const Other& other : others_) {
    if (other.line->gave_up.load() != 0) ranks.push_back(other.rank);
  }
  return ranks;
}

std::vector<MissingRank> NcclBoard::FindMissing(Entry entry, std::chrono::nanoseconds waited,
                                                std::chrono::milliseconds stalled_after) const {
  std::vector<MissingRank> missing;
  for (const Other& other : others_) {
    const Line& line = *other.line;
    // A rank that gave up is not behind: it would have come, but for another one.
    if (line.gave_up.load() != 0) {
      missing.push_back({other.rank, Absence::kGaveUp});
    } else if (Unpack(line.entry.load(std::memory_order_acquire)).sequence < entry.sequence) {
      if (waited >= stalled_after) missing.push_back({other.rank, Absence::kBehind});
    } else if (BoardMillis() - line.alive_ms.load() > stalled_after.count()) {
      missing.push_back({other.rank, Absence::kStalled});
    }
  }
  return Offenders(std::move(missing));
}

}  // namespace gaccd
