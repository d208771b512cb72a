// Made-up reports of ranks, for the tests of `gaccd check`.
#pragma once

#include <vector>

#include "collectives/base/strings.h"
#include "daemon/launch/rank_report.h"

namespace gaccd {

// Nodes n1, n2, ... that are all alike, with `gpus` GPUs each; every rank has one.
inline std::vector<RankReport> MakeReports(int nodes, int ranks_a_node, int gpus) {
  std::vector<RankReport> reports;
  for (int node = 1; node <= nodes; ++node) {
    for (int local = 0; local < ranks_a_node; ++local) {
      RankReport report;
      report.rank = std::ssize(reports);
      report.host = StrCat("n", node);
      report.local_rank = local;
      report.local_size = ranks_a_node;
      report.gaccd = "0.1.0 (8486e3ea)";
      report.build_id = "aaaaaaaaaaaaaaaa";
      report.mpi = "3.1, Open MPI v4.1.4";
      report.onednn = "2.6.3";
      report.cuda = "13.0.0";
      report.cublaslt = "13.1.0";
      report.cudnn = "9.19.0";
      report.nccl = "2.28.9";
      report.driver = gpus > 0 ? "13.0.0" : "not found";
      report.gpus = gpus;
      if (gpus > 0) {
        report.gpu = "NVIDIA H200";
        report.uuid = StrCat("GPU-", node, "-", local % gpus);
        report.pci = StrCat("0000:0", local % gpus, ":00.0");
        report.gpu_memory_bytes = std::int64_t{141} << 30;
      } else {
        report.gpu_problem = "no NVIDIA driver";
      }
      report.cpus = StrCat(local * 4, "-", local * 4 + 3);
      report.cpu_count = 4;
      reports.push_back(report);
    }
  }
  return reports;
}

}  // namespace gaccd
