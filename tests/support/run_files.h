// The files of a run, written by hand, so that they can also be wrong.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "collectives/base/strings.h"
#include "tests/support/temp_folder.h"

namespace gaccd {

// "2026-11-20T03:MM:SS.000000Z", so many seconds after 03:00.
inline std::string At(int second) {
  char text[64];
  std::snprintf(text, sizeof(text), "2026-11-20T03:%02d:%02d.000000Z", second / 60, second % 60);
  return text;
}

class RunFiles {
 public:
  [[nodiscard]] const std::string& path() const { return folder_.path(); }
  [[nodiscard]] std::string Path(std::string_view name) const { return folder_.Path(name); }

  // Makes the folders on the way, and appends.
  void Append(const std::string& name, std::string_view text) const {
    const std::filesystem::path path = Path(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::app | std::ios::binary) << text;
  }
  // `more`: further keys, each after a comma.
  void Event(const std::string& attempt, int second, std::string_view event,
             std::string_view more = "") {
    Append(StrCat("attempts/", attempt, "/events.jsonl"),
           Line(second, event, ++seq_[attempt], more));
  }
  static std::string Line(int second, std::string_view event, std::int64_t seq,
                          std::string_view more = "") {
    return StrCat(R"({"v":1,"ts":")", At(second), R"(","run":"r50","job":"812","attempt":0,)",
                  R"("rank":0,"host":"n1","ev":")", event, R"(","lvl":"info","seq":)", seq, more,
                  "}\n");
  }
  // As CrashHandler and RunReporter leave it.
  void Crash(const std::string& attempt, int second, int rank, std::string_view more) const {
    char name[32];
    std::snprintf(name, sizeof(name), "crash/r%05d.json", rank);
    Append(StrCat("attempts/", attempt, "/", name),
           StrCat(R"({"v":1,"ts":")", At(second),
                  R"(","run":"r50","job":"812","attempt":0,"rank":)", rank, R"(,"host":"n)",
                  rank / 2 + 1, R"(","ev":"failure","lvl":"error","seq":1)", more, "}\n"));
  }
  void SkipSeq(const std::string& attempt, std::int64_t lines) { seq_[attempt] += lines; }

 private:
  const TempFolder folder_;
  std::map<std::string, std::int64_t> seq_;
};

}  // namespace gaccd
