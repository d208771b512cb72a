#include "daemon/train/done_marker.h"

#include <sys/stat.h>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/telemetry/agreement.h"
#include "daemon/telemetry/safe_place.h"

namespace gaccd {
namespace {

constexpr std::size_t kMostText = 400;

std::string PathOf(const std::string& run_dir) { return run_dir + "/DONE"; }

// What stands in it is for people: an empty or unreadable one counts, too.
std::string Look(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  const Result<std::string> text = ReadStart(path, kMostText);
  const std::string line = text.ok() ? text->substr(0, text->find('\n')) : std::string();
  return line.empty() ? "it does not say how far" : line;
}

}  // namespace

Result<std::string> FindDone(Communicator& comm, const std::string& run_dir) {
  Result<std::string> mine = std::string();
  if (comm.rank() == 0) {
    const Status safe = CheckSafeRunFolder(run_dir);
    mine = safe.ok() ? Result<std::string>(Look(PathOf(run_dir))) : Result<std::string>(safe);
  }
  return ShareFromRankZero(comm, mine);
}

Status MarkDone(const std::string& run_dir, const std::string& text, unsigned mode) {
  return ReplaceFile(PathOf(run_dir), text + "\n", /*durable=*/true, mode);
}

}  // namespace gaccd
