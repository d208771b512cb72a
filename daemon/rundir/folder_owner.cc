#include "daemon/rundir/folder_owner.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/base/thread.h"

namespace gaccd {
namespace {

constexpr std::int64_t kStaleAfterSeconds = 60;
constexpr std::chrono::milliseconds kReleaseLimit{2'000};

// Field 22 of /proc/<pid>/stat; 0 if there is no such process, kEnded if it is a zombie (field 3).
// The name in field 2 may contain spaces, so fields are counted from its closing bracket.
constexpr std::int64_t kEnded = -1;
std::int64_t ProcessStart(std::int64_t pid) {
  const Result<std::string> stat = ReadStart(StrCat("/proc/", pid, "/stat"), 4096);
  if (!stat.ok()) return 0;
  const std::size_t bracket = stat->rfind(')');
  if (bracket == std::string::npos) return 0;
  std::istringstream fields(stat->substr(bracket + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return kEnded;
  for (int i = 4; i <= 22; ++i) fields >> field;
  std::int64_t start = 0;
  std::istringstream(field) >> start;
  return start;
}

bool IsAlive(const OwnerName& owner) {
  // Other numbers are not processes: kill(2) treats them as groups, and larger ones would be
  // truncated.
  if (owner.pid < 1 || !std::in_range<pid_t>(owner.pid)) return false;
  if (::kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno == ESRCH) return false;
  const std::int64_t start = ProcessStart(owner.pid);
  return start == 0 || start == owner.started;  // 0: not available in /proc
}

std::string OwnerLine(const OwnerName& owner) {
  return StrCat("job ", owner.job, "\nattempt ", owner.attempt, "\nstep ", owner.step, "\nhost ",
                owner.host, "\npid ", owner.pid, "\nstarted ", owner.started, "\n");
}

OwnerName Parse(const std::string& text) {
  OwnerName owner;
  std::istringstream in(text);
  for (std::string key; in >> key;) {
    if (key == "job") in >> owner.job;
    if (key == "attempt") in >> owner.attempt;
    if (key == "step") in >> owner.step;
    if (key == "host") in >> owner.host;
    if (key == "pid") in >> owner.pid;
    if (key == "started") in >> owner.started;
  }
  return owner;
}

// hint: the reason, if the owner itself cannot be checked.
Status Refused(const std::string& run_dir, const OwnerName& owner, const std::string& hint) {
  const std::string who =
      owner.pid == 0 ? "a run that is just starting"
                     : StrCat("job ", owner.job, " (process ", owner.pid, " on ", owner.host, ")");
  return {ErrorKind::kConfig, StrCat("run folder '", run_dir, "' is in use by ", who, hint,
                                     "; end that run first or give this one another --run-dir")};
}

// The file server's current time minus the modification time of the file.
Result<std::int64_t> AgeByServer(const std::string& run_dir, const struct stat& owner_file) {
  GACCD_ASSIGN_OR_RETURN(const TemporaryFile made, CreateTemporary(run_dir + "/.owner.probe"));
  const auto& [probe, file] = made;
  struct stat now {};
  const bool known = ::write(file.get(), "\n", 1) == 1 && ::fstat(file.get(), &now) == 0;
  const Status status = known ? Status::Ok() : ErrnoStatus("cannot write", probe);
  ::unlink(probe.c_str());
  GACCD_RETURN_IF_ERROR(status);
  return std::int64_t{now.st_mtime} - owner_file.st_mtime;
}

bool IsPredecessor(const OwnerName& owner, const OwnerName& me) {
  return owner.job == me.job && owner.attempt < me.attempt;
}

bool IsSecondStart(const OwnerName& owner, const OwnerName& me) {
  return owner.job == me.job && owner.attempt == me.attempt && me.step >= 0 &&
         owner.step == me.step;
}

// Ok if the owner is gone.
Status CheckGone(const std::string& run_dir, const OwnerName& owner, const OwnerName& me,
                 const struct stat& owner_file) {
  if (owner.host == me.host) {
    return IsAlive(owner) ? Refused(run_dir, owner, "") : Status::Ok();
  }
  if (IsPredecessor(owner, me)) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(const std::int64_t age, AgeByServer(run_dir, owner_file));
  if (age > kStaleAfterSeconds) return Status::Ok();
  return Refused(run_dir, owner,
                 StrCat(", whose last heartbeat is ", age, " s old (it counts as dead after ",
                        kStaleAfterSeconds, " s)"));
}

// Ok if `file` has no other name: a hard link to another file would have that one emptied.
Status CheckOwnFile(int file, const std::string& path, struct stat* info) {
  if (::fstat(file, info) != 0) return ErrnoStatus("cannot read", path);
  if (S_ISREG(info->st_mode) && info->st_uid == ::geteuid() && info->st_nlink == 1) {
    return Status::Ok();
  }
  return {ErrorKind::kConfig,
          StrCat("'", path, "' is not a file that gaccd made for user ", ::geteuid(),
                 ": expected a regular file with one name, found one of user ", info->st_uid,
                 " with ", info->st_nlink, " names; remove it or choose another --run-dir")};
}

}  // namespace

OwnerName MakeOwnerName(const std::string& job, int attempt, std::int64_t step) {
  char host[256] = "unknown";
  ::gethostname(host, sizeof(host) - 1);
  const std::int64_t pid = ::getpid();
  return {job, attempt, step, host, pid, ProcessStart(pid)};
}

Result<FolderOwner> FolderOwner::Acquire(const std::string& run_dir, const OwnerName& me,
                                         const OwnerPatience& patience) {
  constexpr std::chrono::milliseconds kPause{100};
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    std::optional<OwnerName> other;
    auto taken = TryOnce(run_dir, me, &other);
    if (taken.ok() || !other) return taken;
    const bool own_job = IsPredecessor(*other, me) || IsSecondStart(*other, me);
    const auto most = own_job ? patience.own_job : patience.other;
    if (std::chrono::steady_clock::now() - start < most) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    if (!own_job) return taken;
    return Status(ErrorKind::kTempFail,
                  StrCat(taken.status().message(), "; it is attempt ", other->attempt,
                         " of this job, and has not ended for ", most.count() / 1000, " s"));
  }
}

Result<FolderOwner> FolderOwner::TryOnce(const std::string& run_dir, const OwnerName& me,
                                         std::optional<OwnerName>* other) {
  const std::string path = run_dir + "/.owner";
  FileDescriptor folder(::open(run_dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return ErrnoStatus("cannot open folder", run_dir);
  GACCD_ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(path, O_RDWR | O_CREAT));
  const bool locked = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
  const bool refused = !locked && errno == EWOULDBLOCK;
  struct stat info {};
  GACCD_RETURN_IF_ERROR(CheckOwnFile(file.get(), path, &info));
  GACCD_ASSIGN_OR_RETURN(const std::string text, ReadStart(file.get(), path, 4096));
  const OwnerName owner = Parse(text);
  const Status gone = refused          ? Refused(run_dir, owner, "")
                      : owner.pid != 0 ? CheckGone(run_dir, owner, me, info)
                                       : Status::Ok();
  if (!gone.ok()) {
    if (gone.kind() == ErrorKind::kConfig) *other = owner;
    return gone;
  }
  if (::ftruncate(file.get(), 0) != 0) return ErrnoStatus("cannot write", path);
  std::string mine = OwnerLine(me);
  GACCD_RETURN_IF_ERROR(WriteAll(file.get(), mine, path));
  return FolderOwner(run_dir, std::move(folder), std::move(file), std::move(mine));
}

Status FolderOwner::CheckInPlace() const {
  struct stat held {};
  struct stat found {};
  if (!folder_.valid() || ::fstat(folder_.get(), &held) != 0) return Status::Ok();
  if (::stat(run_dir_.c_str(), &found) != 0) return Status::Ok();
  if (held.st_dev == found.st_dev && held.st_ino == found.st_ino) return Status::Ok();
  // Some file systems renumber folders: it is the same one if its owner file is.
  if (IsTrustedOwner(found.st_uid)) {
    const auto text = ReadStart(run_dir_ + "/.owner", text_.size() + 1);
    if (text.ok() && *text == text_) return Status::Ok();
  }
  return {ErrorKind::kConfig,
          StrCat("'", run_dir_, "' is another folder than at the start of this run, of user ",
                 found.st_uid,
                 ": expected the one of this run, which was moved or removed; nothing is written "
                 "into it. Only you should be able to write in ",
                 ParentFolder(run_dir_))};
}

FolderOwner::~FolderOwner() { Release(); }

void FolderOwner::Beat() const {
  if (file_.valid()) ::futimens(file_.get(), nullptr);
}

void FolderOwner::Release() {
  if (!file_.valid()) return;
  // Best effort: an owner file that keeps its text is recognised as stale later. Does not wait for
  // a file system that does not respond.
  const auto file = std::make_shared<FileDescriptor>(std::move(file_));
  [[maybe_unused]] const bool released = CallWithin(kReleaseLimit, [file]() mutable {
    [[maybe_unused]] const int result = ::ftruncate(file->get(), 0);
    (void)file->Close();
  });
}

}  // namespace gaccd
