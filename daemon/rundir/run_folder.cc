#include "daemon/rundir/run_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/rundir/safe_place.h"

namespace gaccd {

namespace {

constexpr std::string_view kMarker = "# Resolved by gaccd: flags and defaults are filled in.\n";
constexpr int kMaxRunsPerAttempt = 10'000;

int NextFreeNumber(const std::string& attempts) {
  int next = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(attempts.c_str()), ::closedir);
  if (folder == nullptr) return next;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (const auto name = ParseAttemptName(entry->d_name)) next = std::max(next, name->number + 1);
  }
  return next;
}

Result<std::string> Absolute(const std::string& path) {
  char resolved[PATH_MAX];
  if (::realpath(path.c_str(), resolved) == nullptr) return ErrnoStatus("cannot find", path);
  return std::string(resolved);
}

constexpr std::string_view kLatest = "/latest";

// Atomically replaces the link attempts/latest -> name.
Status UpdateLatestLink(const std::string& attempts, const std::string& name) {
  const std::string link = StrCat(attempts, kLatest);
  const std::string temporary = StrCat(attempts, "/.latest-", ::getpid());
  ::unlink(temporary.c_str());
  if (::symlink(name.c_str(), temporary.c_str()) != 0) {
    return ErrnoStatus("cannot make link", temporary);
  }
  if (std::rename(temporary.c_str(), link.c_str()) != 0) {
    const Status status = ErrnoStatus("cannot replace link", link);
    ::unlink(temporary.c_str());
    return status;
  }
  return Status::Ok();
}

// A user may keep the job text of the run in the run folder under the same name.
bool IsUserFile(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return false;
  const Result<std::string> start = ReadStart(path, kMarker.size());
  return !start.ok() || *start != kMarker;
}

}  // namespace

Result<RunFolder> RunFolder::Create(const RunFolderRequest& request) {
  const Modes& modes = request.modes;
  GACCD_RETURN_IF_ERROR(MakeFolders(request.run_dir, modes.folder).WithContext("run folder"));
  GACCD_ASSIGN_OR_RETURN(const std::string run_dir, Absolute(request.run_dir));
  GACCD_RETURN_IF_ERROR(CheckSafeRunFolder(request.run_dir));
  const AttemptSource& source = request.attempt;
  const std::string job = source.slurm_job_id.value_or(StrCat("local-", ::getpid()));
  const OwnerName me = MakeOwnerName(job, source.restart_count, source.step_id);
  GACCD_ASSIGN_OR_RETURN(FolderOwner owner, FolderOwner::Acquire(run_dir, me, request.patience));
  RunFolder folder(run_dir, std::move(owner), modes);
  folder.job_ = job;
  GACCD_RETURN_IF_ERROR(folder.MakeAttempt(source).WithContext("run folder"));
  GACCD_RETURN_IF_ERROR(
      folder.WriteInputs(request.job_text, request.plan_text).WithContext("run folder"));
  return folder;
}

Status RunFolder::MakeAttempt(const AttemptSource& source) {
  std::string attempts = run_dir_ + "/attempts";
  GACCD_RETURN_IF_ERROR(MakeFolders(attempts, modes_.folder));
  attempt_ = source.slurm_job_id ? source.restart_count : NextFreeNumber(attempts);
  std::string name = FormatAttemptName(attempt_, job_);
  if (source.attempt_dir) {
    GACCD_ASSIGN_OR_RETURN(const std::string given, Absolute(*source.attempt_dir));
    GACCD_ASSIGN_OR_RETURN(attempts, Absolute(attempts));
    const std::size_t slash = given.rfind('/');
    name = given.substr(slash + 1);
    const auto parsed = ParseAttemptName(name);
    if (given.substr(0, slash) != attempts || !parsed) {
      return {ErrorKind::kConfig, StrCat("GACCD_ATTEMPT_DIR must be ", attempts,
                                         "/NNN-<job>, found '", *source.attempt_dir, "'")};
    }
    attempt_ = parsed->number;
  }
  const std::string first = name;
  for (int run = 2; run <= kMaxRunsPerAttempt; ++run) {
    bool taken = false;
    GACCD_RETURN_IF_ERROR(TryAttempt(StrCat(attempts, "/", name), &taken));
    if (!taken) return UpdateLatestLink(attempts, name);
    name = StrCat(first, ".", run);
  }
  return {ErrorKind::kIo, StrCat("'", attempts, "/", first, "' and ", kMaxRunsPerAttempt - 1,
                                 " more are taken by earlier runs")};
}

// Exclusive creation of the event file claims the attempt: the process that creates it owns it.
Status RunFolder::TryAttempt(const std::string& path, bool* taken) {
  GACCD_RETURN_IF_ERROR(CheckSafePlace(path));
  for (const char* folder : {"/log", "/crash", "/ev"}) {
    GACCD_RETURN_IF_ERROR(MakeFolders(path + folder, modes_.folder));
  }
  const std::string events = path + "/events.jsonl";
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  FileDescriptor file(::open(events.c_str(), kFlags, modes_.file));
  if (!file.valid() && errno == EEXIST) {
    *taken = true;
    return Status::Ok();
  }
  if (!file.valid()) return ErrnoStatus("cannot create", events);
  event_file_ = std::move(file);
  attempt_dir_ = path;
  return Status::Ok();
}

Status RunFolder::WriteInputs(const std::string& job_text, const std::string& plan_text) const {
  const std::pair<const char*, const std::string*> inputs[] = {{"/job.txtpb", &job_text},
                                                               {"/plan.txtpb", &plan_text}};
  for (const auto& [name, text] : inputs) {
    if (text->empty()) continue;
    const std::string content = StrCat(kMarker, *text);
    GACCD_RETURN_IF_ERROR(ReplaceFile(attempt_dir_ + name, content, false, modes_.file));
    if (IsUserFile(run_dir_ + name)) continue;
    GACCD_RETURN_IF_ERROR(ReplaceFile(run_dir_ + name, content, false, modes_.file));
  }
  return Status::Ok();
}

std::string LatestAttempt(const std::string& run_dir) {
  char name[NAME_MAX + 1];
  const ssize_t size = ::readlink(StrCat(run_dir, "/attempts", kLatest).c_str(), name, sizeof name);
  if (size <= 0) return {};
  std::string found(name, static_cast<std::size_t>(size));
  return found.find('/') == std::string::npos ? found : std::string();
}

std::int64_t CountAttempts(const std::string& run_dir) {
  constexpr std::size_t kMaxNames = 100'000;
  const auto names = ListFolder(run_dir + "/attempts", kMaxNames);
  if (!names.ok()) return 0;
  return std::ranges::count_if(*names,
                               [](const auto& n) { return ParseAttemptName(n).has_value(); });
}

std::optional<AttemptName> ParseAttemptName(std::string_view name) {
  constexpr std::size_t kMinDigits = 3;
  constexpr std::size_t kMaxDigits = 9;  // the next number still fits an int
  const std::size_t digits = std::min(name.find('-'), name.size());
  if (digits < kMinDigits || digits > kMaxDigits || digits == name.size()) return std::nullopt;
  if (Printable(name) != name) return std::nullopt;  // readers print it as it is
  AttemptName parsed;
  const auto [end, error] = std::from_chars(name.data(), name.data() + digits, parsed.number);
  if (error != std::errc() || end != name.data() + digits || parsed.number < 0) return std::nullopt;
  parsed.job = name.substr(digits + 1);
  parsed.job.erase(std::min(parsed.job.find('.'), parsed.job.size()));
  if (parsed.job.empty()) return std::nullopt;
  return parsed;
}

std::string FormatAttemptName(int number, std::string_view job) {
  return StrCat(Format("%03d-", number), job);
}

namespace {

constexpr std::size_t kBytes = 64 << 10;

std::string SpareFilePath(const std::string& attempt_dir) { return attempt_dir + "/.space"; }

}  // namespace

Status ReserveDiskSpace(const std::string& attempt_dir, unsigned mode) {
  const std::string path = SpareFilePath(attempt_dir);
  GACCD_ASSIGN_OR_RETURN(const FileDescriptor file,
                         OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC, mode));
  // Written, as not every file system supports reserving space.
  return WriteAll(file.get(), std::string(kBytes, 'x'), path);
}

void ReleaseDiskSpace(const std::string& attempt_dir) {
  (void)::unlink(SpareFilePath(attempt_dir).c_str());
}

}  // namespace gaccd
