#include <algorithm>
#include <utility>

#include "collectives/comm/mpi_watch.h"

namespace gaccd {
namespace {

constexpr int kTag = 1;
// Format: node, late, then (rank, absence) of every missing rank.
constexpr std::size_t kHeader = 2;

}  // namespace

MpiReports::MpiReports(MPI_Comm side, const Topology* topology, int rank)
    : side_(side), topology_(topology), rank_(rank) {}

MpiReports::~MpiReports() {
  // A send to a dead rank never completes; its memory must then outlive this object. Happens at
  // most once, in a process that is about to end.
  if (!Sent()) static_cast<void>(message_.release());
}

int MpiReports::NodeIndex(int rank) const {
  return topology_->node_of[static_cast<std::size_t>(rank)];
}

bool MpiReports::Receive() {
  for (;;) {
    int flag = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kTag, side_, &flag, &status) != MPI_SUCCESS) break;
    if (flag == 0) break;
    int count = 0;
    MPI_Get_count(&status, MPI_INT64_T, &count);
    Words words(static_cast<std::size_t>(count));
    if (MPI_Recv(words.data(), count, MPI_INT64_T, status.MPI_SOURCE, kTag, side_,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      break;
    }
    Merge(words);
  }
  return !received_.empty();
}

void MpiReports::Merge(const Words& words) {
  if (words.size() < kHeader) return;
  NodeReport report = {static_cast<int>(words[0]), words[1] != 0, {}};
  for (std::size_t i = kHeader; i + 1 < words.size(); i += 2) {
    report.missing.push_back({static_cast<int>(words[i]), static_cast<Absence>(words[i + 1])});
  }
  // Two ranks of a node may both have reported; the first report counts.
  const bool known = std::any_of(received_.begin(), received_.end(),
                                 [&](const NodeReport& r) { return r.node == report.node; });
  if (!known) received_.push_back(std::move(report));
}

bool MpiReports::Complete() const {
  return received_.size() + 1 >= static_cast<std::size_t>(topology_->nodes);
}

void MpiReports::Send(const NodeReport& report) {
  if (message_ != nullptr) return;
  message_ = std::make_unique<Words>(Words{report.node, report.late ? 1 : 0});
  for (const MissingRank& missing : report.missing) {
    message_->push_back(missing.rank);
    message_->push_back(static_cast<std::int64_t>(missing.absence));
  }
  const int own_node = NodeIndex(rank_);
  for (int peer = 0; peer < static_cast<int>(topology_->node_of.size()); ++peer) {
    if (NodeIndex(peer) == own_node) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    // A failed send means a lost peer, whose node is then missing in the reports.
    if (MPI_Isend(message_->data(), static_cast<int>(message_->size()), MPI_INT64_T, peer, kTag,
                  side_, &request) == MPI_SUCCESS) {
      sends_.push_back(request);
    }
  }
}

bool MpiReports::Sent() {
  if (sends_.empty()) return true;
  int flag = 0;
  const int code =
      MPI_Testall(static_cast<int>(sends_.size()), sends_.data(), &flag, MPI_STATUSES_IGNORE);
  return code == MPI_SUCCESS && flag != 0;
}

}  // namespace gaccd
