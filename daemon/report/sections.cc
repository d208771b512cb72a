#include "daemon/report/sections.h"

#include <algorithm>
#include <array>
#include <ctime>

namespace gaccd {

Bilingual PhaseName(RunPhase phase) {
  switch (phase) {
    case RunPhase::kSubmitted:
      return {"submitted", "已提交"};
    case RunPhase::kStarting:
      return {"starting", "启动中"};
    case RunPhase::kRunning:
      return {"running", "运行中"};
    case RunPhase::kStale:
      return {"stale", "无响应"};
    case RunPhase::kStopped:
      return {"stopped", "已停止"};
    case RunPhase::kDone:
      return {"done", "已完成"};
    case RunPhase::kFailed:
      break;
  }
  return {"failed", "失败"};
}

std::string FormatTime(WallTime at) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%F %T", &utc);
  return text.data();
}

double Goodput(const RunFigures& figures) {
  return figures.elapsed_s > 0 ? std::clamp(figures.good_s / figures.elapsed_s, 0.0, 1.0) : 0;
}

double SamplesPerSecond(const RunFigures& figures) {
  return figures.update_s.sum > 0 ? figures.samples / figures.update_s.sum : 0;
}

void WriteColumns(std::initializer_list<Column> columns, Html& out) {
  for (const Column& column : columns) {
    (out << (column.is_number ? "<th class=n>" : "<th>")).Say({column.en, column.zh}) << "</th>";
  }
}

void WriteHead(std::initializer_list<Column> columns, Html& out) {
  out << "<tr>";
  WriteColumns(columns, out);
  out << "</tr>";
}

void WriteCell(std::string_view text, Html& out) { (out << "<td>").Text(text) << "</td>"; }

void WriteText(std::string_view text, Html& out) { (out << "<td class=t>").Text(text) << "</td>"; }

void WriteNumber(std::string_view text, Html& out) {
  (out << "<td class=n>").Text(text) << "</td>";
}

void WriteLines(const std::vector<std::string>& lines, Html& out) {
  out << "<ul class=lines>";
  for (const std::string& line : lines) (out << "<li>").Text(line) << "</li>";
  out << "</ul>";
}

}  // namespace gaccd
