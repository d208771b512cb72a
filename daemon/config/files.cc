#include "daemon/config/files.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Status CannotRead(const std::string& path, int error) {
  return {ErrorKind::kIo, StrCat("cannot read '", path, "': ", std::strerror(error))};
}

}  // namespace

Result<std::string> ReadSmallFile(const std::string& path, ErrorKind too_large) {
  // A pipe or device could block for ever, so it is refused before it is opened.
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return CannotRead(path, errno);
  if (S_ISDIR(info.st_mode)) return CannotRead(path, EISDIR);
  if (!S_ISREG(info.st_mode)) {
    return Status(ErrorKind::kIo, StrCat("cannot read '", path, "': not a regular file"));
  }
  const File file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return CannotRead(path, errno);
  std::string text(kMaxTextBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return CannotRead(path, errno);
  if (text.size() > kMaxTextBytes) {
    return Status(too_large, StrCat("'", path, "' is too large: at most ", kMaxTextBytes,
                                    " bytes, found ", info.st_size));
  }
  return text;
}

}  // namespace gaccd
