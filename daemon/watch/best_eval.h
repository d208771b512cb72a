// The best evaluation of a run, over all its attempts: what runs are compared by.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gaccd {

struct BestEval {
  std::string metric;  // the job's first one, else "loss"; Printable()
  double value = 0;
  std::int64_t step = 0;  // updates before it; of equal values the first one
};

// The smallest loss, perplexity, mse or mae; the largest of any other metric. Nothing where there
// was no evaluation with a finite value. Reads all events of the run, and parses only evaluations.
[[nodiscard]] std::optional<BestEval> FindBestEval(const std::string& run_dir);

}  // namespace gaccd
