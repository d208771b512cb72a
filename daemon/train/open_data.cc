#include "daemon/train/open_data.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/data/class_names.h"
#include "daemon/data/node_share.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

int NodeLeader(const Topology& topology, int rank) {
  const auto& nodes = topology.node_of;
  return static_cast<int>(std::ranges::find(nodes, nodes[static_cast<std::size_t>(rank)]) -
                          nodes.begin());
}

// Collective. One line for all ranks that could not share.
Status Warn(Communicator& comm, const std::string& note) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> notes, GatherText(comm, note));
  const auto first = std::ranges::find_if(notes, [](const auto& text) { return !text.empty(); });
  if (comm.rank() != 0 || first == notes.end()) return Status::Ok();
  const auto count = std::ranges::count_if(notes, [](const auto& text) { return !text.empty(); });
  LogWarning(
      StrCat("data is not shared on every node; each rank that cannot share it opens it itself: ",
             RankOnHost(static_cast<int>(first - notes.begin()), comm.topology().hosts), ": ",
             *first, count > 1 ? StrCat(" (and ", count - 1, " more ranks)") : ""));
  return Status::Ok();
}

}  // namespace

Agreement OpenSharedData(Communicator& comm, const Job& job, const BadRecordRules& rules,
                         TrainingData* data) {
  return OpenSharedData(comm, [&](NodeShare* share) -> Status {
    GACCD_ASSIGN_OR_RETURN(*data, OpenTrainingData(job, rules, share));
    return Status::Ok();
  });
}

Agreement OpenSharedData(Communicator& comm, const OpenOnRank& open) {
  const Topology& topology = comm.topology();
  const int leader = NodeLeader(topology, comm.rank());
  const bool leads = leader == comm.rank();
  std::optional<NodeShare> share;
  Agreement opened = WorkTogether(comm, [&](const TickFunction& tick) {
    if (!leads) return Status::Ok();
    // A rank that is alone on its node uses its own memory.
    share.emplace(topology.local_size > 1 ? NodeShare::Leader(tick)
                                          : NodeShare::Follower("", tick));
    return open(&*share);
  });
  if (!opened.status.ok()) return opened;
  const auto texts = GatherText(comm, leads ? share->Text() : "");
  if (!texts.ok()) return {texts.status(), comm.rank()};
  opened = WorkTogether(comm, [&](const TickFunction& tick) {
    if (leads) return Status::Ok();
    share.emplace(NodeShare::Follower((*texts)[static_cast<std::size_t>(leader)], tick));
    return open(&*share);
  });
  if (!opened.status.ok()) return opened;
  Status warned = Warn(comm, share->note());
  return {std::move(warned), comm.rank()};
}

Result<std::vector<std::string>> NamesFromRankZero(
    Communicator& comm, const std::function<Result<std::vector<std::string>>()>& read) {
  Result<std::string> mine = std::string();
  if (comm.rank() == 0) {
    const auto names = read();
    mine = names.ok() ? Result<std::string>(ClassNamesText(*names)) : names.status();
  }
  GACCD_ASSIGN_OR_RETURN(const std::string shared, ShareFromRank(comm, 0, mine));
  return ParseClassNames(shared);
}

}  // namespace gaccd
