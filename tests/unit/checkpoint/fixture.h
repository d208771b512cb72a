// A folder of its own for a test, and a small run to save there.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "collectives/base/strings.h"
#include "tests/unit/checkpoint/small_run.h"

namespace gaccd {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = ::testing::TempDir() + "checkpoint.XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string ckpt() const { return path_ + "/ckpt"; }

 private:
  std::string path_;
};

}  // namespace gaccd
