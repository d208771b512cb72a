#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/config/help.h"
#include "daemon/config/job_text.h"
#include "daemon/launch/launch.h"
#include "daemon/launch/rank_report.h"
#include "daemon/verbs/verbs.h"

namespace gaccd {
namespace {

// For every rank, the first rank of its node that would load the same libraries.
Result<std::vector<std::size_t>> FindLoaders(Communicator& comm, const Environment& environment) {
  GACCD_ASSIGN_OR_RETURN(
      const auto sources,
      GatherText(comm, StrCat(BuildId(), " ", environment("LD_LIBRARY_PATH").value_or(""))));
  const std::vector<int>& nodes = comm.topology().node_of;
  std::map<std::pair<int, std::string>, std::size_t> first;
  std::vector<std::size_t> loaders;
  for (std::size_t rank = 0; rank < sources.size(); ++rank) {
    loaders.push_back(first.try_emplace({nodes[rank], sources[rank]}, rank).first->second);
  }
  return loaders;
}

Result<std::vector<RankReport>> GatherReports(Communicator& comm) {
  const Environment environment = ProcessEnvironment();
  GACCD_ASSIGN_OR_RETURN(const auto loaders, FindLoaders(comm, environment));
  const auto rank = static_cast<std::size_t>(comm.rank());
  const RankReport mine =
      MakeRankReport(comm, ProbeGpus(comm.size()), environment, loaders[rank] == rank);
  GACCD_ASSIGN_OR_RETURN(const auto texts, GatherText(comm, EncodeReport(mine)));
  std::vector<RankReport> reports;
  for (const std::string& text : texts) reports.push_back(DecodeReport(text));
  for (std::size_t r = 0; r < reports.size(); ++r) {
    if (loaders[r] != r) CopyGpuLibraries(reports[loaders[r]], reports[r]);
  }
  return reports;
}

// On rank 0. With JSON, warnings go to stderr.
Status Show(const std::vector<RankReport>& reports, const std::vector<std::string>& warnings,
            OutputFormat format) {
  std::string text;
  std::string warning_text;
  for (const std::string& warning : warnings) warning_text += StrCat("warning: ", warning, "\n");
  if (format == OutputFormat::kJson) {
    for (const RankReport& report : reports) text += ReportJson(report) + "\n";
    std::fputs(warning_text.c_str(), stderr);
    return PrintOut(text);
  }
  text = RankTableText(reports);
  if (!warning_text.empty()) text += "\n" + warning_text;
  return PrintOut(text);
}

Status IncompatibleRanks(const RankCompatibility& result, std::size_t ranks) {
  std::string text = StrCat(ranks, " ranks cannot work together");
  for (const std::string& error : result.errors) text += "\n  " + error;
  return {ErrorKind::kConfig, text};
}

Result<Device> WantedDevice(const Flags& flags) {
  Job job;
  if (flags.job) {
    GACCD_ASSIGN_OR_RETURN(job, LoadJob(*flags.job));
  }
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  return job.device;
}

// Returns the same status on every rank, unless rank 0 fails to print.
Status ReportCompatibility(const std::vector<RankReport>& reports, Device wanted,
                           const Flags& flags, bool lead) {
  const RankCompatibility result = CheckRanks(
      reports,
      {.gpus_matter = wanted != Device::kCpu, .allow_gpu_sharing = flags.allow_gpu_sharing});
  if (lead) GACCD_RETURN_IF_ERROR(Show(reports, result.warnings, flags.format));
  if (!result.errors.empty()) return IncompatibleRanks(result, reports.size());
  std::vector<RankGpu> gpus;
  for (const RankReport& report : reports) {
    gpus.push_back({report.host, report.gpu, report.gpu_problem});
  }
  GACCD_ASSIGN_OR_RETURN(const DeviceChoice choice, DecideDevice(wanted, gpus));
  if (!lead || flags.format == OutputFormat::kJson) return {};
  return PrintOut(StrCat("\nno conflict; training would use ", choice.text, "\n"));
}

}  // namespace

VerbOutcome RunCheck(const Flags& flags, const ErrorPrinter& print) {
  auto ranks = JoinRanks(flags, ProcessEnvironment());
  if (!ranks.ok()) return {ranks.status()};
  const auto reports = GatherReports(*ranks->comm);
  if (!reports.ok()) return {reports.status()};
  const auto wanted = WantedDevice(flags);
  Agreement all = AgreeOn(*ranks->comm, wanted.status());  // one rank may not see the file
  const bool lead = ranks->comm->rank() == 0;
  if (all.status.ok()) all = {ReportCompatibility(*reports, *wanted, flags, lead)};
  Status status = std::move(all.status);
  if (status.ok()) return {};
  if (ranks->comm->rank() == all.reporting_rank) print(status);
  return {std::move(status), true};
}

}  // namespace gaccd
