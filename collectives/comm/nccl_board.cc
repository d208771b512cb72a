#include "collectives/comm/nccl_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {
constexpr std::size_t kBytes = 4096;
}

void NcclBoard::Unmap::operator()(Line* line) const { munmap(line, kBytes); }

NcclBoard::MappedLine NcclBoard::Map(int fd, int protection) {
  void* const memory = mmap(nullptr, kBytes, protection, MAP_SHARED, fd, 0);
  return MappedLine(memory == MAP_FAILED ? nullptr : static_cast<Line*>(memory));
}

NcclBoard::NcclBoard() : fd_(memfd_create("gaccd-nccl-board", MFD_CLOEXEC)) {
  if (fd_.valid() && ftruncate(fd_.get(), kBytes) == 0) {
    own_ = Map(fd_.get(), PROT_READ | PROT_WRITE);  // zeros are a valid line
  }
  if (own_ == nullptr) fd_ = FileDescriptor();
  PublishAlive();
}

void NcclBoard::Watch(int rank, ProcessName process, int fd) {
  if (fd < 0 || process.pid_namespace != ThisProcess().pid_namespace) return;
  const std::string path = StrCat("/proc/", process.pid, "/fd/", fd);
  const FileDescriptor opened(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  MappedLine line = opened.valid() ? Map(opened.get(), PROT_READ) : nullptr;
  if (line != nullptr) others_.push_back({rank, std::move(line)});
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
    // A rank that gave up is not behind: it did so because of another rank.
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
