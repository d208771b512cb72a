#include "daemon/plan/balance_stages.h"

#include <algorithm>
#include <limits>

#include "collectives/base/strings.h"

namespace gaccd {

// least[s][b]: the cost of the most expensive of s + 1 stages that contain the first b blocks.
Result<std::vector<std::int64_t>> BalanceStages(std::span<const double> costs, std::int64_t stages,
                                                std::int64_t least_first) {
  const std::size_t blocks = costs.size();
  const auto count = static_cast<std::size_t>(stages);
  if (stages > 1 && stages + least_first > std::ssize(costs) + 1) {
    return Status(ErrorKind::kConfig,
                  StrCat("pipeline: expected at most one stage a block, found ", stages,
                         " stages and ", blocks, blocks == 1 ? " block" : " blocks",
                         least_first > 1 ? StrCat("; the first stage needs ", least_first,
                                                  " of them to have something to train")
                                         : "",
                         "; a block ends where one value continues and the parameters used so far "
                         "are declared before all others: use fewer stages, or declare parameters "
                         "(in PyTorch: modules) in the order of their use and export again"));
  }
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> least(count, std::vector<double>(blocks + 1, kNever));
  std::vector<std::vector<std::size_t>> before(count, std::vector<std::size_t>(blocks + 1));
  std::vector<double> sum(blocks + 1);
  for (std::size_t b = 0; b < blocks; ++b) sum[b + 1] = sum[b] + costs[b];
  for (auto b = static_cast<std::size_t>(least_first); b <= blocks; ++b) least[0][b] = sum[b];
  for (std::size_t s = 1; s < count; ++s) {
    for (std::size_t b = s + 1; b <= blocks; ++b) {
      for (std::size_t split = s; split < b; ++split) {
        const double most = std::max(least[s - 1][split], sum[b] - sum[split]);
        if (most >= least[s][b]) continue;
        least[s][b] = most;
        before[s][b] = split;
      }
    }
  }
  std::vector<std::int64_t> divided(count);
  std::size_t end = blocks;
  for (std::size_t s = count; s-- > 0;) {
    divided[s] = static_cast<std::int64_t>(end - before[s][end]);
    end = before[s][end];
  }
  return divided;
}

}  // namespace gaccd
