#include "daemon/report/report_command.h"

#include "collectives/base/print.h"
#include "collectives/base/strings.h"
#include "daemon/export/text_sink.h"
#include "daemon/report/page.h"

namespace gaccd {

Status RunReportCommand(const ReportRequest& request) {
  const std::vector<std::string> folders =
      request.folders.empty() ? std::vector<std::string>{"."} : request.folders;
  if (folders.size() > 1 && request.out.empty()) {
    return {ErrorKind::kUsage, "a report of several runs needs --out=FILE"};
  }
  std::vector<ReportData> stories;
  for (const std::string& folder : folders) {
    GACCD_ASSIGN_OR_RETURN(ReportData story,
                           ReadReportData(folder, std::chrono::system_clock::now()));
    stories.push_back(std::move(story));
  }
  const std::string path = request.out.empty() ? folders[0] + "/report.html" : request.out;
  GACCD_ASSIGN_OR_RETURN(TextSink sink, TextSink::Open(path));
  GACCD_RETURN_IF_ERROR(sink.Write(ReportPage(stories, request.language)));
  GACCD_RETURN_IF_ERROR(sink.Close());
  return PrintOut(StrCat(path, "\n"));
}

}  // namespace gaccd
