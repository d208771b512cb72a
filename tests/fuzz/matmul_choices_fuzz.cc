// The file of timed choices, without the header and the checksums, which are put there here.
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "collectives/base/hash.h"
#include "daemon/device/cuda/matmul_choices.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace {

std::string WithChecksum(std::string_view line) {
  char sum[17] = {};
  std::to_chars(sum, sum + 16, gaccd::Fnv1a(line), 16);
  return std::string(line) + " " + sum + "\n";
}

}  // namespace

int gaccd::FuzzMatmulChoices(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  const MatmulChoicesKey key{.gpu_name = "G", .compute_capability = 90};
  const std::string none = ToText(key, {});
  std::string text = none.substr(0, none.rfind("end "));
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    text += line.starts_with("end ") ? std::string(line) + "\n" : WithChecksum(line);
  }
  const auto choices = ParseMatmulChoices(text, key);
  if (!choices.ok()) {
    FuzzCheck(choices.status().kind() == ErrorKind::kData, "the kind of a refusal is data");
    return 0;
  }
  for (const MatmulChoice& choice : *choices) {
    FuzzCheck(Check(choice.spec).ok(), "a choice is for a product that may be asked for");
    for (const double time : {choice.microseconds, choice.separate_microseconds}) {
      FuzzCheck(time >= 0 && time <= 1e9, "times are in range");
    }
  }
  const auto again = ParseMatmulChoices(ToText(key, *choices), key);
  FuzzCheck(again.ok() && again->size() == choices->size(), "what is written can be read");
  for (std::size_t i = 0; i < choices->size(); ++i) {
    FuzzCheck((*again)[i].spec == (*choices)[i].spec, "a product comes back as it was");
    FuzzCheck(std::memcmp(&(*again)[i].algorithm, &(*choices)[i].algorithm,
                          sizeof(cublasLtMatmulAlgo_t)) == 0,
              "an algorithm comes back as it was");
  }
  return 0;
}
