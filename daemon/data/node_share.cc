#include "daemon/data/node_share.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// MAP_POPULATE: reports of planned memory include the pages on every rank from the start.
std::optional<SharedBytes> Map(int fd, std::size_t bytes, int protection) {
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (data == MAP_FAILED) return std::nullopt;
  // A hint for random reads; most systems have no large pages for shared memory.
  (void)madvise(data, bytes, MADV_HUGEPAGE);
  return SharedBytes{{static_cast<std::byte*>(data), bytes},
                     {data, [bytes](void* mapped) { munmap(mapped, bytes); }}};
}

std::string FileIdentity(const struct stat& info) { return StrCat(info.st_dev, ":", info.st_ino); }

// Whether the path fits in one line.
bool IsPlain(const std::string& path) { return path.find('\n') == std::string::npos; }

Status Allocate(int fd, std::size_t bytes, const std::string& path) {
  rlimit limit{};  // SIGXFSZ beyond it
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    return {ErrorKind::kOs,
            StrCat("'", path, "' needs ", bytes, " bytes, RLIMIT_FSIZE is ", limit.rlim_cur)};
  }
  // Allocates all pages now: a failure later would be a SIGBUS.
  int error = EINTR;  // at signals, until Linux 6.12 also at ignored ones
  while (error == EINTR) error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  errno = error;
  if (error != 0) return ErrnoStatus("no memory to unpack", path);
  (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  return Status::Ok();
}

}  // namespace

void NodeShare::Note(std::string_view what, const std::string& path) {
  if (note_.empty()) note_ = ErrnoStatus(what, path).message();
}

std::optional<SharedBytes> NodeShare::Reserve(const std::string& path, std::size_t bytes) {
  if (!is_leader_) return std::nullopt;
  Entry entry{
      .path = path, .memory = {}, .identity = {}, .file = {}, .bytes = bytes, .published = false};
  entry.file = FileDescriptor(memfd_create("gaccd-data", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  struct stat info {};
  if (!entry.file.valid() || fstat(entry.file.get(), &info) != 0) {
    Note("no shared memory to unpack", path);
    return std::nullopt;
  }
  if (Status allocated = Allocate(entry.file.get(), bytes, path); !allocated.ok()) {
    if (note_.empty()) note_ = allocated.message();
    return std::nullopt;
  }
  auto mapped = Map(entry.file.get(), bytes, PROT_READ | PROT_WRITE);
  if (!mapped) {
    Note("cannot map the memory to unpack", path);
    return std::nullopt;
  }
  entry.memory = StrCat("/proc/", getpid(), "/fd/", entry.file.get());
  entry.identity = FileIdentity(info);
  unpacked_.push_back(std::move(entry));
  return mapped;
}

void NodeShare::Publish(const std::string& path) {
  const auto entry = std::ranges::find(unpacked_, path, &Entry::path);
  if (entry != unpacked_.end()) entry->published = true;
}

void NodeShare::MarkChecked(const std::string& use, std::int64_t found) { checked_[use] = found; }

std::string NodeShare::Text() const {
  std::string text;
  for (const Entry& entry : unpacked_) {
    if (!entry.published || !IsPlain(entry.path)) continue;
    text += StrCat("unpacked ", entry.memory, " ", entry.identity, " ", entry.bytes, " ",
                   entry.path, "\n");
  }
  for (const auto& [use, found] : checked_) {
    if (IsPlain(use)) text += StrCat("checked ", found, " ", use, "\n");
  }
  return text;
}

NodeShare NodeShare::Follower(std::string_view text, TickFunction tick) {
  NodeShare share(/*is_leader=*/false, std::move(tick));
  for (const std::string& line : Split(text, '\n')) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    Entry entry;
    std::int64_t found = 0;
    if (kind == "unpacked") words >> entry.memory >> entry.identity >> entry.bytes;
    if (kind == "checked") words >> found;
    words.get();  // the space before the path
    if (!std::getline(words, entry.path)) continue;
    if (kind == "unpacked") share.unpacked_.push_back(std::move(entry));
    if (kind == "checked") share.checked_[entry.path] = found;
  }
  return share;
}

std::optional<SharedBytes> NodeShare::Find(const std::string& path) {
  const auto entry = std::ranges::find(unpacked_, path, &Entry::path);
  if (entry == unpacked_.end() || !entry->published) return std::nullopt;
  const FileDescriptor file(open(entry->memory.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0) {
    Note("cannot open the unpacked", path);
    return std::nullopt;
  }
  // In another PID namespace (containers) the path is a file of another process.
  if (FileIdentity(info) != entry->identity || info.st_size != static_cast<off_t>(entry->bytes)) {
    errno = ESRCH;
    Note("cannot find the unpacked", path);
    return std::nullopt;
  }
  auto mapped = Map(file.get(), entry->bytes, PROT_READ);
  if (!mapped) Note("cannot map the unpacked", path);
  return mapped;
}

NodeShare NodeShare::Unchecked() {
  NodeShare share(/*is_leader=*/false, [] { return Status::Ok(); });
  share.unchecked_ = true;
  return share;
}

bool NodeShare::IsChecked(const std::string& use) const {
  return unchecked_ || checked_.contains(use);
}

std::int64_t NodeShare::Found(const std::string& use) const {
  const auto found = checked_.find(use);
  return found == checked_.end() ? 0 : found->second;
}

}  // namespace gaccd
