#include "tests/sources.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

namespace gaccd::tests {
namespace {

constexpr std::string_view kOption = "--sources=";

std::set<std::string> SplitAtCommas(std::string_view list) {
  std::set<std::string> parts;
  std::istringstream in{std::string(list)};
  for (std::string part; std::getline(in, part, ',');) parts.insert(part);
  return parts;
}

// Those of a suite that are in other files, as a part of a filter. What was wanted goes to
// `found`.
std::string Others(const ::testing::TestSuite& suite, const std::set<std::string>& wanted,
                   std::set<std::string>* found) {
  std::string others;
  bool all = true;
  for (int i = 0; i < suite.total_test_count(); ++i) {
    const auto& test = *suite.GetTestInfo(i);
    const auto source = std::ranges::find_if(wanted, [&](const std::string& name) {
      return std::string_view(test.file()).ends_with("/tests/" + name);
    });
    if (source == wanted.end()) {
      others += std::string(":") + suite.name() + "." + test.name();
    } else {
      found->insert(*source);
      all = false;
    }
  }
  return all ? std::string(":") + suite.name() + ".*" : others;
}

}  // namespace

bool KeepSources(int argc, char** argv) {
  if (argc == 1) return true;
  if (argc != 2 || !std::string_view(argv[1]).starts_with(kOption)) {
    std::fprintf(stderr, "expected --sources=FILE,... or flags of GoogleTest, found '%s'\n",
                 argv[1]);
    return false;
  }
  const auto wanted = SplitAtCommas(std::string_view(argv[1]).substr(kOption.size()));
  std::set<std::string> found;
  std::string others;
  const auto& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    others += Others(*all.GetTestSuite(i), wanted, &found);
  }
  for (const std::string& source : wanted) {
    if (found.contains(source)) continue;
    std::fprintf(stderr, "no test in tests/%s\n", source.c_str());
    return false;
  }
  // After the '-' of a filter comes what it excludes.
  std::string& filter = ::testing::GTEST_FLAG(filter);
  if (filter.find('-') == std::string::npos) filter += '-';
  filter += others;
  return true;
}

}  // namespace gaccd::tests
