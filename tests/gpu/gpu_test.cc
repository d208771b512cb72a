#include "tests/gpu/gpu_test.h"

#include <cmath>
#include <cstdio>

namespace gaccd {

double RelativeDifference(std::span<const float> found, std::span<const float> expected) {
  if (found.size() != expected.size()) return std::nan("");
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double d = static_cast<double>(found[i]) - expected[i];
    difference += d * d;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return std::sqrt(difference / norm);
}

namespace {
void PrintCells(const std::string& check, const char* result, const std::string& note) {
  std::printf("ROW [\"%s\", \"%s\", \"\", \"\", \"\", \"\", \"%s\"]\n", check.c_str(), result,
              note.c_str());
}
}  // namespace

void PrintRow(const std::string& check, bool passed, const std::string& expected,
              const std::string& seen) {
  PrintCells(check, passed ? "PASS" : "FAIL", "expected " + expected + ", seen " + seen);
}

void PrintSkip(const std::string& check, const std::string& reason) {
  PrintCells(check, "SKIP", reason);
}

void PrintFact(const std::string& fact) { std::printf("FACT %s\n", fact.c_str()); }

}  // namespace gaccd
