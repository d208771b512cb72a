#include "daemon/rundir/srun_errors.h"

#include <algorithm>

#include "collectives/base/strings.h"

namespace gaccd {

std::string SrunErrors(std::string_view text) {
  constexpr std::string_view kPrefix = "srun: error: ";
  constexpr int kMax = 4;
  std::string words;
  int found = 0;
  text = text.substr(0, text.find("Job step aborted"));
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool of_task = line.starts_with(kPrefix) && line.find(": task") != std::string_view::npos;
    if (!of_task || line.find("Exited with exit code") != std::string_view::npos) continue;
    if (++found > kMax) continue;
    words += StrCat(found == 1 ? "" : "; ", Printable(line.substr(kPrefix.size())));
  }
  if (found > kMax) words += StrCat("; and ", found - kMax, " more");
  return words;
}

std::string GaccdError(std::string_view text) {
  constexpr std::string_view kPrefix = "gaccd: ";
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with(kPrefix) && line.find("error (") != std::string_view::npos) {
      return Printable(line.substr(kPrefix.size()));
    }
  }
  return {};
}

}  // namespace gaccd
