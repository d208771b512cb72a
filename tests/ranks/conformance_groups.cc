// Conformance of the operations that concern the group: topology, allocation and split.
#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "tests/ranks/conformance_cases.h"

namespace gaccd::tests {
namespace {

std::size_t Index(int rank) { return static_cast<std::size_t>(rank); }

// Sums one number per rank over `comm`; each rank gives its rank in the outer communicator + 1.
Status ExpectMembers(Communicator& comm, Notes& notes, int outer_rank,
                     const std::vector<int>& members) {
  notes.Expect(comm.size() == static_cast<int>(members.size()), "a group of ", comm.size(),
               " ranks, expected ", members.size());
  const std::vector<std::int64_t> ones(Index(comm.size()), 1);
  std::vector<std::int32_t> found(ones.size());
  const std::int32_t mine = outer_rank;
  GACCD_RETURN_IF_ERROR(
      comm.AllGather(View(std::span<const std::int32_t>(&mine, 1)), ones, View(std::span(found))));
  notes.Expect(std::ranges::equal(found, members), "wrong ranks or a wrong order in a group of ",
               comm.size());
  std::vector<float> data(314, static_cast<float>(outer_rank + 1));
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(std::span(data)), View(std::span(data))));
  int sum = 0;
  for (const int member : members) sum += member + 1;
  notes.Expect(std::ranges::all_of(data, [&](float x) { return x == static_cast<float>(sum); }),
               "all-reduce in a group of ", comm.size(), " gave ", data[0], ", expected ", sum);
  return Status::Ok();
}

std::vector<int> RanksWhere(int ranks, auto condition) {
  std::vector<int> result;
  for (int r = 0; r < ranks; ++r) {
    if (condition(r)) result.push_back(r);
  }
  return result;
}

void ExpectConsistent(Notes& notes, const Communicator& comm) {
  const Topology& topology = comm.topology();
  const std::size_t ranks = Index(comm.size());
  notes.Expect(topology.hosts.size() == ranks && topology.node_of.size() == ranks, "topology of ",
               topology.hosts.size(), " hosts for ", ranks, " ranks");
  if (topology.node_of.size() != ranks) return;
  int seen = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    notes.Expect(topology.node_of[r] >= 0 && topology.node_of[r] <= seen,
                 "nodes are not numbered by their lowest rank: rank ", r, " is on node ",
                 topology.node_of[r]);
    seen = std::max(seen, topology.node_of[r] + 1);
    notes.Expect(!topology.hosts[r].empty(), "rank ", r, " has no host name");
  }
  notes.Expect(topology.nodes == seen, "found ", seen, " nodes, expected ", topology.nodes);
  const int node = topology.node_of[Index(comm.rank())];
  const auto begin = topology.node_of.begin();
  notes.Expect(topology.local_size == std::count(begin, topology.node_of.end(), node),
               "local size is ", topology.local_size);
  notes.Expect(topology.local_rank == std::count(begin, begin + comm.rank(), node),
               "local rank is ", topology.local_rank);
}

}  // namespace

Status CheckTopology(Communicator& comm, const ConformanceOptions& /*options*/) {
  Notes notes;
  notes.Expect(comm.rank() >= 0 && comm.rank() < comm.size(), "rank ", comm.rank(), " of ",
               comm.size());
  ExpectConsistent(notes, comm);
  return notes.status();
}

Status CheckAllocate(Communicator& comm, const ConformanceOptions& /*options*/) {
  Notes notes;
  for (const std::size_t bytes : {0UL, 1UL, 4UL, 4096UL, 5000UL, 100'000UL}) {
    GACCD_ASSIGN_OR_RETURN(auto memory, comm.Allocate(bytes));
    notes.Expect(memory->bytes() == bytes, "asked for ", bytes, " bytes, got ", memory->bytes());
    if (bytes == 0) continue;
    notes.Expect(reinterpret_cast<std::uintptr_t>(memory->data()) % 4096 == 0, bytes,
                 " bytes are not aligned to 4096");
    const std::span<std::uint8_t> data(static_cast<std::uint8_t*>(memory->data()), bytes);
    notes.Expect(std::ranges::all_of(data, [](std::uint8_t b) { return b == 0; }), bytes,
                 " bytes are not zeroed");
    std::ranges::fill(data, static_cast<std::uint8_t>(comm.rank() + 1));
    // Each rank has its own memory: nobody sees what another wrote.
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    notes.Expect(std::ranges::all_of(data, [&](std::uint8_t b) { return b == comm.rank() + 1; }),
                 "another rank wrote into these ", bytes, " bytes");
    GACCD_RETURN_IF_ERROR(comm.Barrier());
  }
  return notes.status();
}

Status CheckSplit(Communicator& comm, const ConformanceOptions& /*options*/) {
  Notes notes;
  const int me = comm.rank();
  const int ranks = comm.size();

  GACCD_ASSIGN_OR_RETURN(const auto parity, comm.Split(me % 2, 0));
  ExpectConsistent(notes, *parity);
  GACCD_RETURN_IF_ERROR(
      ExpectMembers(*parity, notes, me, RanksWhere(ranks, [&](int r) { return r % 2 == me % 2; })));

  GACCD_ASSIGN_OR_RETURN(const auto reversed, comm.Split(0, -me));
  std::vector<int> backwards = RanksWhere(ranks, [](int) { return true; });
  std::ranges::reverse(backwards);
  ExpectConsistent(notes, *reversed);
  notes.Expect(reversed->rank() == ranks - 1 - me, "reversed rank is ", reversed->rank());
  GACCD_RETURN_IF_ERROR(ExpectMembers(*reversed, notes, me, backwards));

  // Both new groups and the old one are used in turn.
  GACCD_RETURN_IF_ERROR(parity->Barrier());
  GACCD_RETURN_IF_ERROR(comm.Barrier());
  GACCD_RETURN_IF_ERROR(reversed->Barrier());
  return notes.status();
}

Status CheckSplitCorners(Communicator& comm, const ConformanceOptions& /*options*/) {
  Notes notes;
  const int me = comm.rank();
  const int ranks = comm.size();

  GACCD_ASSIGN_OR_RETURN(const auto without_first, comm.Split(me == 0 ? -1 : 7, 0));
  notes.Expect((without_first == nullptr) == (me == 0), "color -1 must give no communicator");
  if (without_first != nullptr) {
    GACCD_RETURN_IF_ERROR(
        ExpectMembers(*without_first, notes, me, RanksWhere(ranks, [](int r) { return r > 0; })));
  }

  GACCD_ASSIGN_OR_RETURN(const auto alone, comm.Split(me, 0));
  GACCD_RETURN_IF_ERROR(ExpectMembers(*alone, notes, me, {me}));

  GACCD_ASSIGN_OR_RETURN(const auto nobody, comm.Split(-1, 0));
  notes.Expect(nobody == nullptr, "color -1 everywhere must give no communicator");

  GACCD_ASSIGN_OR_RETURN(const auto outer, comm.Split(me / 2, 0));
  GACCD_ASSIGN_OR_RETURN(const auto inner, outer->Split(0, -me));
  std::vector<int> pair = RanksWhere(ranks, [&](int r) { return r / 2 == me / 2; });
  std::ranges::reverse(pair);
  GACCD_RETURN_IF_ERROR(ExpectMembers(*inner, notes, me, pair));
  return notes.status();
}

// Of all ranks: W ranks on K nodes, B bytes.
Status CheckTraffic(Communicator& comm, const ConformanceOptions& /*options*/) {
  Notes notes;
  const std::int64_t world = comm.size();
  const std::int64_t nodes = comm.topology().nodes;
  std::vector<std::int64_t> counts;
  std::int64_t near = 0;  // elements that stay on the node of their owner, by receiving rank
  for (int r = 0; r < comm.size(); ++r) {
    counts.push_back(100 * (r % 3) + 17);
    near += counts.back() *
            std::ranges::count(comm.topology().node_of, comm.topology().node_of[Index(r)]);
  }
  const std::int64_t total = std::reduce(counts.begin(), counts.end());
  std::vector<float> all(static_cast<std::size_t>(total));
  std::vector<float> own(static_cast<std::size_t>(counts[Index(comm.rank())]));
  const std::int64_t width = sizeof(float);
  const auto check = [&](std::string_view what, CommTraffic expected, const auto& run) -> Status {
    const CommTraffic before = comm.traffic();
    GACCD_RETURN_IF_ERROR(run());
    const CommTraffic after = comm.traffic();
    std::vector<std::int64_t> sum = {after.sent - before.sent,
                                     after.between_nodes - before.between_nodes};
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(std::span(sum)), View(std::span(sum))));
    notes.Expect(sum[0] == expected.sent && sum[1] == expected.between_nodes, what, " sent ",
                 sum[0], " bytes, ", sum[1], " between nodes, expected ", expected.sent, " and ",
                 expected.between_nodes);
    return Status::Ok();
  };
  const CommTraffic parts = {.sent = (world - 1) * total * width,
                             .between_nodes = (world * total - near) * width};
  GACCD_RETURN_IF_ERROR(check("all-gather", parts, [&] {
    return comm.AllGather(View(std::span(own)), counts, View(std::span(all)));
  }));
  GACCD_RETURN_IF_ERROR(check("reduce-scatter", parts, [&] {
    return comm.ReduceScatter(View(std::span(all)), counts, View(std::span(own)));
  }));
  GACCD_RETURN_IF_ERROR(check(
      "all-reduce",
      {.sent = 2 * (world - 1) * total * width, .between_nodes = 2 * (nodes - 1) * total * width},
      [&] {
        const auto view = View(std::span(all));
        return comm.AllReduceSum(view, view);
      }));
  return notes.status();
}

}  // namespace gaccd::tests
