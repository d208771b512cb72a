#include "daemon/rundir/spare_space.h"

#include <fcntl.h>
#include <unistd.h>

#include "collectives/base/files.h"

namespace gaccd {
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
