#include "daemon/rundir/srun_errors.h"

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {

std::string SrunErrors(std::string_view text) {
  constexpr std::string_view kPrefix = "srun: error: ";
  constexpr int kMax = 4;
  std::string words;
  int found = 0;
  for (const std::string& line : Split(text.substr(0, text.find("Job step aborted")), '\n')) {
    const bool of_task = line.starts_with(kPrefix) && line.find(": task") != std::string::npos;
    if (!of_task || line.find("Exited with exit code") != std::string::npos) continue;
    if (++found > kMax) continue;
    words += StrCat(found == 1 ? "" : "; ", Printable(line.substr(kPrefix.size())));
  }
  if (found > kMax) words += StrCat("; and ", found - kMax, " more");
  return words;
}

std::string ReadSrunErrors(const std::string& attempt_dir) {
  constexpr std::size_t kMaxBytes = 64 << 10;
  const auto text = ReadStart(attempt_dir + "/srun.err", kMaxBytes);
  return text.ok() ? PrintableLine(SrunErrors(*text)) : std::string();
}

std::string GaccdError(std::string_view text) {
  constexpr std::string_view kPrefix = "gaccd: ";
  for (const std::string& line : Split(text, '\n')) {
    if (line.starts_with(kPrefix) && line.find("error (") != std::string::npos) {
      return Printable(line.substr(kPrefix.size()));
    }
  }
  return {};
}

}  // namespace gaccd
