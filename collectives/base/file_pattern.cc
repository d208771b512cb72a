#include "collectives/base/file_pattern.h"

#include <cstddef>

#include "collectives/base/files.h"

namespace gaccd {

Result<std::map<std::string, std::string>> Glob(const std::string& pattern) {
  constexpr std::size_t kMaxFiles = std::size_t{1} << 20;
  std::map<std::string, std::string> files;
  const std::string folder = pattern.substr(0, pattern.rfind('/') + 1);
  const std::string name = pattern.substr(folder.size());
  if (!IsPattern(name) || !IsFolder(ParentFolder(pattern))) return files;
  GACCD_ASSIGN_OR_RETURN(const auto names, ListFolder(ParentFolder(pattern), kMaxFiles));
  const std::string before = name.substr(0, name.find('*'));
  const std::string after = name.substr(before.size() + 1);
  for (const std::string& file : names) {
    if (file.starts_with('.') && !name.starts_with('.')) continue;  // as for a shell
    if (file.size() < before.size() + after.size() || !file.starts_with(before) ||
        !file.ends_with(after)) {
      continue;
    }
    const std::size_t length = file.size() - before.size() - after.size();
    files.emplace(file.substr(before.size(), length), folder + file);
  }
  return files;
}

}  // namespace gaccd
