#include "collectives/base/print.h"

#include <cstdio>

namespace gaccd {

Status PrintOut(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return {};
  return {ErrorKind::kIo, "cannot write to standard output"};
}

}  // namespace gaccd
