#include "collectives/base/print.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "collectives/base/strings.h"

namespace gaccd {

Status PrintOut(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return {};
  if (errno == EPIPE) return {ErrorKind::kIo, ""};
  return {ErrorKind::kIo, StrCat("cannot write to standard output: ", std::strerror(errno))};
}

}  // namespace gaccd
