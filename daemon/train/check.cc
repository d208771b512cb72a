#include "daemon/train/check.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/print.h"
#include "collectives/base/strings.h"
#include "daemon/preflight/gather_text.h"
#include "daemon/preflight/rank_report.h"
#include "daemon/preflight/rank_table.h"
#include "daemon/preflight/rank_verdict.h"
#include "daemon/train/launch.h"

namespace gaccd {
namespace {

Result<std::vector<RankReport>> GatherReports(Communicator& comm) {
  const RankReport mine = ReportOfThisRank(comm, ProbeGpus(comm.size()), ProcessEnvironment());
  GACCD_ASSIGN_OR_RETURN(const auto texts, GatherText(comm, EncodeReport(mine)));
  std::vector<RankReport> reports;
  for (const std::string& text : texts) reports.push_back(DecodeReport(text));
  return reports;
}

// On rank 0. Lines of JSON stay alone on stdout.
Status Show(const std::vector<RankReport>& reports, const std::vector<std::string>& warnings,
            OutputFormat format) {
  std::string text;
  std::string remarks;
  for (const std::string& warning : warnings) remarks += StrCat("warning: ", warning, "\n");
  if (format == OutputFormat::kJson) {
    for (const RankReport& report : reports) text += ReportJson(report) + "\n";
    std::fputs(remarks.c_str(), stderr);
    return PrintOut(text);
  }
  text = RankTableText(reports);
  if (!remarks.empty()) text += "\n" + remarks;
  return PrintOut(text);
}

Status Refusal(const RankVerdict& verdict, std::size_t ranks) {
  std::string text = StrCat(ranks, " ranks cannot work together");
  for (const std::string& error : verdict.errors) text += "\n  " + error;
  return {ErrorKind::kConfig, text};
}

// The same on every rank, but for what rank 0 cannot write.
Status Judge(const std::vector<RankReport>& reports, const Flags& flags, bool lead) {
  const Device wanted = flags.device.value_or(Device::kAuto);
  const RankVerdict verdict = JudgeRanks(reports, {.gpus_matter = wanted != Device::kCpu,
                                                   .allow_gpu_sharing = flags.allow_gpu_sharing});
  if (lead) GACCD_RETURN_IF_ERROR(Show(reports, verdict.warnings, flags.format));
  if (!verdict.errors.empty()) return Refusal(verdict, reports.size());
  std::vector<RankGpu> gpus;
  for (const RankReport& report : reports) {
    gpus.push_back({report.host, report.gpu, report.gpu_problem});
  }
  GACCD_ASSIGN_OR_RETURN(const DeviceChoice choice, DecideDevice(wanted, gpus));
  if (!lead || flags.format == OutputFormat::kJson) return {};
  return PrintOut(StrCat("\nno conflict; training would use ", choice.text, "\n"));
}

}  // namespace

RanksOutcome RunCheck(const Flags& flags, const ErrorPrinter& print) {
  auto ranks = JoinRanks(flags, ProcessEnvironment());
  if (!ranks.ok()) return {std::move(ranks).status()};
  const auto reports = GatherReports(*ranks->comm);
  if (!reports.ok()) return {reports.status()};
  const bool lead = ranks->comm->rank() == 0;
  Status status = Judge(*reports, flags, lead);
  if (!status.ok() && lead) print(status);
  return {std::move(status), true};
}

}  // namespace gaccd
