#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/launch/rank_report.h"
#include "slurm/hostlist.h"

namespace gaccd {
namespace {

using Reports = std::span<const RankReport>;
using Row = std::vector<std::string>;

struct Column {
  std::string_view title;
  std::function<std::string(const RankReport&)> value;
};

std::string Gibibytes(std::int64_t bytes) {
  return Format("%.1f GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string Gpu(const RankReport& report) {
  if (report.gpu_problem.empty()) return report.gpu.empty() ? "none" : report.gpu;
  if (report.gpu.empty()) return report.gpu_problem;
  return StrCat(report.gpu, ", not usable: ", report.gpu_problem);
}

std::string Cudnn(const RankReport& report) {
  if (report.attention_problem.empty()) return report.cudnn;
  return StrCat(report.cudnn, ", not usable: ", report.attention_problem);
}

std::string Memlock(const RankReport& report) {
  return report.memlock_bytes < 0 ? "unlimited" : StrCat(report.memlock_bytes / 1024, " KiB");
}

std::string OpenFiles(const RankReport& report) {
  return StrCat("at most ", report.descriptors, ", ", report.descriptors_needed, " needed");
}

// Empty values are not shown: not built in, or nothing to report.
const std::vector<Column>& Columns() {
  static const std::vector<Column> kColumns = {
      {"gaccd", [](const RankReport& r) { return r.gaccd; }},
      {"build", [](const RankReport& r) { return r.build_id.substr(0, 12); }},
      {"MPI", [](const RankReport& r) { return r.mpi; }},
      {"oneDNN", [](const RankReport& r) { return r.onednn; }},
      {"CUDA runtime", [](const RankReport& r) { return r.cuda; }},
      {"driver", [](const RankReport& r) { return r.driver; }},
      {"cuBLASLt", [](const RankReport& r) { return r.cublaslt; }},
      {"cuDNN", Cudnn},
      {"NCCL", [](const RankReport& r) { return r.nccl; }},
      {"GPU", Gpu},
      {"GPU memory",
       [](const RankReport& r) { return r.gpu.empty() ? "" : Gibibytes(r.gpu_memory_bytes); }},
      {"PCI", [](const RankReport& r) { return r.pci; }},
      {"CUDA_VISIBLE_DEVICES", [](const RankReport& r) { return r.cuda_visible_devices; }},
      {"cores", [](const RankReport& r) { return r.cpus; }},
      {"locked memory", Memlock},
      {"open files", OpenFiles},
  };
  return kColumns;
}

bool SameOnAll(Reports reports, const Column& column) {
  const std::string first = column.value(reports[0]);
  return std::ranges::all_of(reports, [&](const auto& r) { return column.value(r) == first; });
}

// One row for these ranks, which are equal in `rest`.
Row MakeRow(const std::vector<const RankReport*>& ranks, const Row& rest) {
  std::vector<std::int64_t> numbers;
  std::vector<std::string> hosts;
  std::set<std::int64_t> locals;
  std::set<std::string> uuids;
  for (const RankReport* report : ranks) {
    numbers.push_back(report->rank);
    hosts.push_back(report->host);
    locals.insert(report->local_rank);
    if (!report->uuid.empty()) uuids.insert(report->uuid);
  }
  Row row = {NumberList(numbers), CompressHostlist(hosts),
             NumberList({locals.begin(), locals.end()})};
  if (uuids.size() == 1) row.push_back(*uuids.begin());
  if (uuids.empty()) row.emplace_back();
  if (uuids.size() > 1) row.push_back(StrCat(uuids.size(), " GPUs"));
  row.insert(row.end(), rest.begin(), rest.end());
  return row;
}

// Aligned text; columns without values are omitted.
std::string Aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows[0].size());
  for (std::size_t r = 1; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < widths.size(); ++c) {
      widths[c] = std::max(widths[c], rows[r][c].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (widths[c] == 0) continue;
      const std::size_t width = std::max(widths[c], rows[0][c].size());
      line += StrCat("  ", row[c], std::string(width - row[c].size(), ' '));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string Common(Reports reports, const std::vector<const Column*>& columns) {
  std::size_t width = 0;
  for (const Column* column : columns) {
    if (!column->value(reports[0]).empty()) width = std::max(width, column->title.size());
  }
  std::string text;
  for (const Column* column : columns) {
    const std::string value = column->value(reports[0]);
    if (value.empty()) continue;
    text += StrCat("  ", column->title, std::string(width - column->title.size(), ' '), "  ", value,
                   "\n");
  }
  return text;
}

}  // namespace

std::string RankTableText(Reports reports) {
  std::vector<const Column*> common;
  std::vector<const Column*> different;
  for (const Column& column : Columns()) {
    (SameOnAll(reports, column) ? common : different).push_back(&column);
  }
  // Groups of equal ranks, ordered by their lowest rank. With few ranks each is a group.
  std::map<Row, std::size_t> index_of;
  std::vector<std::vector<const RankReport*>> groups;
  std::vector<Row> rests;
  std::set<std::string> hosts;
  for (const RankReport& report : reports) {
    hosts.insert(report.host);
    Row rest;
    for (const Column* column : different) rest.push_back(column->value(report));
    const auto [at, is_new] = index_of.try_emplace(rest, groups.size());
    if (is_new || reports.size() <= kMaxRankLines) {
      at->second = groups.size();
      groups.emplace_back();
      rests.push_back(rest);
    }
    groups[at->second].push_back(&report);
  }
  std::vector<Row> rows = {{"rank", "host", "local", "UUID"}};
  for (const Column* column : different) rows[0].emplace_back(column->title);
  for (std::size_t g = 0; g < groups.size(); ++g) rows.push_back(MakeRow(groups[g], rests[g]));
  return StrCat(Counted(reports.size(), "rank"), " on ", Counted(hosts.size(), "node"),
                "; the same on all:\n", Common(reports, common), "\n", Aligned(rows));
}

}  // namespace gaccd
