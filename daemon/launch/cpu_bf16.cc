#include "daemon/launch/cpu_bf16.h"

#include <algorithm>
#include <set>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/share_text.h"

namespace gaccd {

Result<std::string> CheckBf16OnCpus(Communicator& over, CpuBf16 mine, bool allow_emulation) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> found, GatherText(over, Name(mine)));
  const auto refused = [&](const std::string& name) {
    return name == Name(CpuBf16::kNone) || (!allow_emulation && name == Name(CpuBf16::kEmulated));
  };
  if (const auto first = std::ranges::find_if(found, refused); first != found.end()) {
    const auto rank = static_cast<std::size_t>(first - found.begin());
    const bool can_be_emulated = *first == Name(CpuBf16::kEmulated);
    return Status(
        ErrorKind::kConfig,
        StrCat("precision bf16: expected AVX512_BF16 or AMX on the CPU of every rank, ",
               std::ranges::count_if(found, refused), " of ", found.size(), " have neither; rank ",
               rank, " on ", over.topology().hosts[rank], " has ", *first,
               can_be_emulated ? ": --allow-emulation computes it there, slower than f32" : ""));
  }
  std::string text;
  for (const std::string& name : std::set<std::string>(found.begin(), found.end())) {
    const bool emulated = name == Name(CpuBf16::kEmulated);
    text += StrCat(text.empty() ? "products in bf16 by " : " and ", emulated ? "emulation" : name);
  }
  return text;
}

}  // namespace gaccd
