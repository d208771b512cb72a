#include "daemon/submit/start_checks.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/optim/optimizer.h"
#include "daemon/replica/model.h"
#include "daemon/submit/sbatch_script.h"
#include "daemon/submit/signal_lead.h"

namespace gaccd {
namespace {

// The value of --mem, for example "4G", in MiB. Empty for 0, which is the whole node, or if
// invalid.
std::optional<std::int64_t> ParseSbatchMemory(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  double size = 0;
  char unit = 'M';
  if (std::sscanf(text->c_str(), "%lf%c", &size, &unit) < 1 || !(size > 0) || size > 1e12) {
    return std::nullopt;
  }
  const auto upper = static_cast<char>(std::toupper(static_cast<unsigned char>(unit)));
  const std::size_t power = std::string_view("KMGT").find(upper);
  if (power == std::string_view::npos) return std::nullopt;
  return static_cast<std::int64_t>(std::ldexp(size, 10 * (static_cast<int>(power) - 1)));
}

// Empty if the arguments after -- set a range of nodes.
std::optional<std::int64_t> CountNodes(const Flags& flags) {
  const std::int64_t nodes = flags.nodes.value_or(kDefaultNodes);
  const auto own = FindOption(flags.words, "--nodes", 'N');
  return own && *own != StrCat(nodes) ? std::nullopt : std::optional(nodes);
}

// A lower bound of the memory of the ranks of a node; 0 if it is not known without the data.
std::int64_t MinMemoryMib(const Job& job, std::int64_t nodes, std::int64_t ranks) {
  const auto model = Model::MakeWithoutData(WithAbsolutePaths(job).model);
  if (!model.ok()) return 0;
  const std::int64_t stages = std::max<std::int64_t>(job.pipeline.stages, 1);
  const std::int64_t parameters = model->layout().size() / stages;  // on average
  const bool freezes = std::ranges::any_of(
      job.optimizer.group, [](const auto& group) { return group.freeze.value_or(false); });
  const std::int64_t trained = freezes ? 0 : parameters;  // the fewest
  const std::int64_t state = StateElements(job.optimizer, trained);
  // Sharded state is divided among the ranks of a node, or among all ranks.
  const std::int64_t states = job.shard == Sharding::kNone   ? state * ranks
                              : job.shard == Sharding::kNode ? state
                                                             : state / nodes;
  return (4 * ((parameters + trained) * ranks + states)) >> 20;
}

void AddMissingFiles(const Flags& flags, const Job& job, std::vector<std::string>* problems) {
  std::vector<std::string> missing = MissingFiles(job);
  if (flags.init_weights && !PathExists(*flags.init_weights)) {
    missing.push_back(*flags.init_weights);
  }
  const bool resumes = flags.resume != "auto" && flags.resume != "never";
  if (resumes && !PathExists(flags.resume)) missing.push_back(flags.resume);
  for (const std::string& path : missing) {
    problems->push_back(StrCat("there is no '", path,
                               "' here: unless the nodes of the job have it, the job fails as soon "
                               "as it starts"));
  }
}

}  // namespace

std::string GetPartition(const Flags& flags) {
  return FindOption(flags.words, "--partition", 'p').value_or(flags.partition.value_or(""));
}

Result<std::optional<std::int64_t>> GivenTimeLimit(const Flags& flags) {
  const std::optional<std::string> own = FindOption(flags.words, "--time", 't');
  if (own || flags.time) return ParseTimeLimit(own ? *own : *flags.time);
  return std::optional<std::int64_t>();
}

Result<std::vector<std::string>> StartProblems(const Flags& flags, const Job& job,
                                               const SiteOutputs& site, bool gpus) {
  JobShape shape{.nodes = CountNodes(flags),
                 .memory_mib = ParseSbatchMemory(FindOption(flags.words, "--mem"))};
  GACCD_ASSIGN_OR_RETURN(shape.time_limit_s, GivenTimeLimit(flags));
  std::vector<std::string> problems = StartWarnings(site, GetPartition(flags), shape);
  const std::int64_t ranks = flags.gpus_per_node.value_or(kDefaultGpusPerNode);
  const std::int64_t min_mib =
      gpus || !shape.memory_mib ? 0 : MinMemoryMib(job, shape.nodes.value_or(1), ranks);
  if (min_mib > shape.memory_mib.value_or(0)) {
    problems.push_back(StrCat("--mem: the ", ranks, " ranks of a node need at least ", min_mib,
                              " MiB for weights, gradients and the optimizer, the job asks for ",
                              *shape.memory_mib, " MiB"));
  }
  if (!flags.container_image) AddMissingFiles(flags, job, &problems);  // the image has other files
  return problems;
}

}  // namespace gaccd
