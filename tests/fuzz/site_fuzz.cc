// What scontrol and srun print of a site, and the names that a job asks for.
#include <string>

#include "daemon/submit/signal_lead.h"
#include "daemon/submit/slurm_site.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_parts.h"
#include "tests/fuzz/fuzz_targets.h"

int gaccd::FuzzSite(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  const auto [partitions, mpi_types, names, mpi, limit] = SplitParts<5>(data, size);
  const SiteOutputs outputs{.partitions = std::string(partitions),
                            .mpi_types = std::string(mpi_types)};
  for (const std::string& warning : SiteWarnings(outputs, names, mpi)) {
    FuzzCheck(!warning.empty(), "a warning says something");
  }
  if (const auto seconds = DefaultTimeLimit(outputs, names)) {
    FuzzCheck(*seconds >= 0, "a time limit is not negative");
    FuzzCheck(ComputeLead({}, seconds).seconds <= *seconds, "the signal comes before the end");
  }
  const auto parsed = ParseTimeLimit(limit);
  if (parsed.ok()) {
    FuzzCheck(parsed->value_or(0) >= 0, "a time limit is not negative");
  } else {
    FuzzCheck(parsed.status().kind() == ErrorKind::kUsage, "the kind of a refusal is usage");
  }
  return 0;
}
