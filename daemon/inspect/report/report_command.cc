#include "daemon/inspect/report/report_command.h"

#include <map>

#include "collectives/base/output.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// The page with `json` instead of its sample data.
std::string PageWith(std::string_view json) {
  constexpr std::string_view kBegin = R"(<script type="application/json" id="data">)";
  const std::string_view page = PageHtml();
  const std::size_t begin = page.find(kBegin) + kBegin.size();
  const std::size_t end = page.find("</script>", begin);
  return StrCat(page.substr(0, begin), json, page.substr(end));
}

// Runs whose folders have the same name are named by their paths.
void NameApart(const std::vector<std::string>& folders, std::vector<ReportData>& runs) {
  std::map<std::string, int> count;
  for (const ReportData& run : runs) ++count[run.folder_name];
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (count[runs[i].folder_name] > 1) runs[i].folder_name = folders[i];
  }
}

}  // namespace

Status RunReportCommand(const ReportRequest& request) {
  const std::vector<std::string> folders =
      request.folders.empty() ? std::vector<std::string>{"."} : request.folders;
  if (folders.size() > 1 && request.out.empty()) {
    return {ErrorKind::kUsage, "a report of several runs needs --out=FILE"};
  }
  std::vector<ReportData> runs;
  for (const std::string& folder : folders) {
    GACCD_ASSIGN_OR_RETURN(ReportData run,
                           ReadReportData(folder, std::chrono::system_clock::now(), FindJobStates));
    runs.push_back(std::move(run));
  }
  NameApart(folders, runs);
  const std::string path = request.out.empty() ? folders[0] + "/report.html" : request.out;
  GACCD_RETURN_IF_ERROR(CheckReplaces(path, "<!doctype html>", "a report"));
  GACCD_ASSIGN_OR_RETURN(TextSink sink, TextSink::Open(path));
  GACCD_RETURN_IF_ERROR(sink.Write(PageWith(ReportJson(runs, request.language))));
  GACCD_RETURN_IF_ERROR(sink.Close());
  return PrintOut(StrCat(path, "\n"));
}

}  // namespace gaccd
