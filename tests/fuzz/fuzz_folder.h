// A folder for the files of one input, in memory where that can be.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz_check.h"

namespace gaccd {

class FuzzFolder {
 public:
  FuzzFolder() {
    path_ = (std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") +
            std::string("/gaccd-fuzz-XXXXXX");
    FuzzCheck(::mkdtemp(path_.data()) != nullptr, "there is a folder for the input");
  }
  ~FuzzFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  void Write(const std::string& name, std::string_view content) const {
    const std::filesystem::path file = path_ + "/" + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
  }

 private:
  std::string path_;
};

}  // namespace gaccd
