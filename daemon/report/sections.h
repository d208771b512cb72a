// The sections of the report of one run, in their order on the page. A section without anything to
// tell is left out.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "daemon/report/html.h"
#include "daemon/report/report_data.h"

namespace gaccd {

// section_head.cc
void WriteVerdict(const ReportData& story,
                  Html& out);  // the state of the run, and the next command
void WriteFigures(const ReportData& story, Html& out);
// section_plan.cc
void WritePlan(const ReportData& story, Html& out);
// section_curves.cc
void WriteCurves(const ReportData& story, Html& out);
// section_time.cc
void WritePhases(const ReportData& story, Html& out);
void WriteSlowRanks(const ReportData& story, Html& out);
// section_attempts.cc
void WriteAttempts(const ReportData& story, Html& out);
void WriteGoodput(const ReportData& story, Html& out);
// section_files.cc
void WriteSaves(const ReportData& story, Html& out);
void WriteFailures(const ReportData& story, Html& out);
void WriteChanges(const ReportData& story, Html& out);
void WriteJob(const ReportData& story, Html& out);
void WriteNotes(const ReportData& story, Html& out);

// Of use to several of them.
[[nodiscard]] Bilingual PhaseName(RunPhase phase);
// The share of its time in which the run did updates that count.
[[nodiscard]] double Goodput(const RunFigures& figures);
// "2026-11-20 03:04:05", UTC.
[[nodiscard]] std::string FormatTime(WallTime at);
// While it did updates; 0 before the first one.
[[nodiscard]] double SamplesPerSecond(const RunFigures& figures);

// The cells of tables.
struct Column {
  const char* en;
  const char* zh;
  bool is_number = false;
};
void WriteColumns(std::initializer_list<Column> columns, Html& out);
void WriteHead(std::initializer_list<Column> columns, Html& out);  // a row of them
void WriteCell(std::string_view text, Html& out);                  // on one line
void WriteText(std::string_view text, Html& out);                  // on as many as it needs
void WriteNumber(std::string_view text, Html& out);                // at the right

void WriteLines(const std::vector<std::string>& lines, Html& out);  // a list

}  // namespace gaccd
