#include "daemon/launch/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

std::int64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t soft = std::exchange(limit.rlim_cur, limit.rlim_max);
  const rlim_t found = setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : soft;
  constexpr rlim_t kMax = std::numeric_limits<std::int64_t>::max();  // for RLIM_INFINITY
  return static_cast<std::int64_t>(std::min(found, kMax));
}

Status CheckDescriptors(std::int64_t limit, std::int64_t ranks) {
  const std::int64_t needed = DescriptorsNeeded(ranks);
  if (limit >= needed) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("a process may have ", limit, " files open at once, expected at least ", needed,
                 " for ", Counted(ranks, "rank"),
                 ": raise the hard limit (ulimit -Hn; LimitNOFILE= of slurmd.service)")};
}

}  // namespace gaccd
