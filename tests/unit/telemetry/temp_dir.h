// A folder of one test, removed with everything in it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace gaccd {

class TempDir {
 public:
  TempDir() {
    std::string name = std::filesystem::temp_directory_path() / "gaccd-test-XXXXXX";
    path_ = ::mkdtemp(name.data()) == nullptr ? "" : name;
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace gaccd
