#include "daemon/inspect/watch/run_folders.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxNames = 10'000;

std::string PathIn(const std::string& folder, const std::string& name) {
  return folder == "." ? name : StrCat(folder, "/", name);
}

}  // namespace

bool IsRunFolder(const std::string& folder) {
  const std::initializer_list<const char*> names = {"/STATUS.json", "/submit.jsonl",
                                                    "/ledger.jsonl", "/attempts"};
  return std::ranges::any_of(names, [&](const char* name) { return PathExists(folder + name); });
}

Status CheckMayRead(const std::string& folder) {
  if (::faccessat(AT_FDCWD, (folder + "/.").c_str(), R_OK | X_OK, AT_EACCESS) == 0) return {};
  return errno == EACCES ? ErrnoStatus("no permission to read", folder) : Status::Ok();
}

Status NoRunFolder(const std::string& folder) {
  if (!PathExists(folder)) {
    return {ErrorKind::kUsage,
            StrCat("'", folder, "' does not exist; expected the folder given as --run-dir")};
  }
  if (IsRunFolder(folder)) {
    return {ErrorKind::kUsage, StrCat("the run in '", folder, "' has no attempts yet")};
  }
  std::string inside;
  if (const auto runs = FindRunFolders(folder); runs.ok() && !runs->folders.empty()) {
    inside = StrCat(", as '", runs->folders.front(), "' in it; gaccd runs lists all");
  }
  return {ErrorKind::kUsage,
          StrCat("'", folder,
                 "' is not a run folder: it has no STATUS.json, submit.jsonl, ledger.jsonl and "
                 "attempts; expected the folder given as --run-dir",
                 inside)};
}

Result<FoundRuns> FindRunFolders(const std::string& folder) {
  GACCD_ASSIGN_OR_RETURN(const auto names, ListFolder(folder, kMaxNames));
  FoundRuns found;
  const auto take = [&found](const std::string& path) {
    const bool readable = CheckMayRead(path).ok();
    if (!readable) found.unreadable.push_back(path);
    const bool is_run = readable && IsRunFolder(path);
    if (is_run) found.folders.push_back(path);
    return is_run || !readable;
  };
  for (const std::string& name : names) {
    const std::string path = PathIn(folder, name);
    if (!IsFolder(path) || take(path)) continue;
    const auto inner = ListFolder(path, kMaxNames);
    if (!inner.ok()) continue;  // too many entries for a sweep
    for (const std::string& one : *inner) {
      if (IsFolder(PathIn(path, one))) (void)take(PathIn(path, one));
    }
  }
  return found;
}

void WarnAboutUnreadable(const FoundRuns& runs) {
  if (runs.unreadable.empty()) return;
  const std::size_t more = runs.unreadable.size() - 1;
  LogWarning(StrCat("no permission to read '", runs.unreadable.front(), "'",
                    more == 0 ? "" : StrCat(" and ", Counted(more, "other"))));
}

}  // namespace gaccd
