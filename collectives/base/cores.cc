#include "collectives/base/cores.h"

#include <cerrno>
#include <cstring>

#include "collectives/base/strings.h"

namespace gaccd {

Result<CoreMask> AllowedCores(const GetAffinity& ask) {
  constexpr std::size_t kMaxWords = 1 << 14;  // a million cores
  for (std::size_t words = sizeof(cpu_set_t) / sizeof(CoreMask::value_type);; words *= 2) {
    CoreMask mask(words);
    if (ask(words * sizeof(mask[0]), reinterpret_cast<cpu_set_t*>(mask.data())) == 0) return mask;
    if (errno != EINVAL || words >= kMaxWords) {
      return Status(ErrorKind::kOs, StrCat("sched_getaffinity: ", std::strerror(errno)));
    }
  }
}

std::vector<std::int64_t> CoreNumbers(const CoreMask& mask) {
  std::vector<std::int64_t> numbers;
  for (std::size_t core = 0; core < 64 * mask.size(); ++core) {
    if ((mask[core / 64] >> (core % 64) & 1) != 0) {
      numbers.push_back(static_cast<std::int64_t>(core));
    }
  }
  return numbers;
}

}  // namespace gaccd
