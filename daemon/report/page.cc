#include "daemon/report/page.h"

#include "daemon/report/sections.h"

namespace gaccd {
namespace {

void WriteTop(const std::string& title, Html& out) {
  const bool both = out.language() == PageLanguage::kBoth;
  out << "<!doctype html>\n<html lang=" << (out.language() == PageLanguage::kZh ? "zh" : "en")
      << "><head><meta charset=utf-8>"
      << "<meta name=viewport content='width=device-width,initial-scale=1'>"
      << "<meta name=color-scheme content='light dark'>"
      << "<meta name=generator content=gaccd><title>";
  out.Text(title) << "</title><style>" << kPageStyle << "</style></head>\n<body>";
  if (!both) return;
  out << "<input type=radio name=language id=en checked><input type=radio name=language id=zh>"
      << "<nav><label for=en>English</label><label for=zh>中文</label></nav>";
}

void WriteRun(const ReportData& story, Html& out) {
  WriteVerdict(story, out);
  WriteFigures(story, out);
  WritePlan(story, out);
  WriteCurves(story, out);
  WritePhases(story, out);
  WriteSlowRanks(story, out);
  WriteAttempts(story, out);
  WriteGoodput(story, out);
  WriteSaves(story, out);
  WriteFailures(story, out);
  WriteChanges(story, out);
  WriteJob(story, out);
  WriteNotes(story, out);
}

}  // namespace

std::string ReportPage(std::span<const ReportData> stories, PageLanguage language) {
  Html out(language);
  const bool is_one = stories.size() == 1;
  WriteTop(is_one ? stories[0].folder_name : "gaccd runs", out);
  out << "<main>\n";
  if (is_one) {
    WriteRun(stories[0], out);
  } else {
    WriteComparison(stories, out);
  }
  out << "</main><script>" << kPageScript << "</script></body></html>\n";
  return std::move(out).Take();
}

}  // namespace gaccd
