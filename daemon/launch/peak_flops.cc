#include "daemon/launch/peak_flops.h"

#include <cctype>

namespace gaccd {
namespace {

struct Peak {
  std::string_view part_of_name;  // at the end of a word; the first match counts
  double tera_16_bit;             // half of it with TF32
  double tera_f32;
};

constexpr Peak kPeaks[] = {
    {"GB200", 2500, 80},   {"B200", 2250, 75},     {"GH200", 989.4, 66.9}, {"H200 NVL", 0, 0},
    {"H200", 989.4, 66.9}, {"H100 PCIe", 756, 51}, {"H100 NVL", 835, 60},  {"H100", 989.4, 66.9},
    {"A100", 312, 19.5},   {"A30", 165, 10.3},     {"L40S", 362, 91.6},    {"L40", 181, 90.5},
    {"L4", 121, 30.3},
};

// "A100" is not in "RTX A1000".
bool ContainsWords(std::string_view name, std::string_view words) {
  const std::size_t begin = name.find(words);
  if (begin == std::string_view::npos) return false;
  const std::string_view rest = name.substr(begin + words.size());
  return rest.empty() || std::isalnum(static_cast<unsigned char>(rest.front())) == 0;
}

}  // namespace

double PeakFlops(std::string_view gpu_name, const Numerics& numerics) {
  if (gpu_name.find("MIG") != std::string_view::npos) return 0;
  for (const Peak& peak : kPeaks) {
    if (!ContainsWords(gpu_name, peak.part_of_name)) continue;
    if (numerics.precision != Precision::kF32) return peak.tera_16_bit * 1e12;
    return (numerics.tf32 ? peak.tera_16_bit / 2 : peak.tera_f32) * 1e12;
  }
  return 0;
}

}  // namespace gaccd
