// A folder of its own for a test, removed at its end.
#pragma once

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace gaccd {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "gaccd-test-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  // A thread that outlives its test may still write there, or remove its own file.
  ~TempFolder() {
    std::error_code error;
    for (int tries = 0; tries < 100; ++tries) {
      std::filesystem::remove_all(path_, error);
      if (!error) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string Path(std::string_view name) const {
    return path_ + "/" + std::string(name);
  }
  // Writes a file and returns its path.
  [[nodiscard]] std::string Write(std::string_view name, std::string_view content) const {
    std::string path = Path(name);
    std::ofstream(path, std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
    return path;
  }

 private:
  std::string path_;
};

}  // namespace gaccd
