#include "tests/standin/graph.h"

#include <optional>

#include "tests/standin/faults.h"

namespace gaccd::standin {
namespace {

// A node goes to the end of a chain that it comes after anyway; else it begins a chain.
std::vector<std::vector<std::size_t>> LayOut(const std::vector<Node>& nodes) {
  std::vector<std::vector<std::size_t>> chains;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    std::optional<std::size_t> place;
    for (std::size_t chain = 0; chain < chains.size() && !place; ++chain) {
      for (const std::size_t before : nodes[node].after) {
        if (chains[chain].back() == before) place = chain;
      }
    }
    if (place) {
      chains[*place].push_back(node);
    } else {
      chains.push_back({node});
    }
  }
  return chains;
}

}  // namespace

ExecutableGraph::ExecutableGraph(const Graph& graph)
    : nodes_(graph.nodes),
      chains_(LayOut(nodes_)),
      node_done_(nodes_.size()),
      chain_done_(chains_.size()) {
  for (std::size_t chain = 1; chain < chains_.size(); ++chain) helpers_.push_back(new Worker);
}

ExecutableGraph::~ExecutableGraph() {
  if (last_launch_ != nullptr) last_launch_->signal.WaitFor(1);
  for (Worker* helper : helpers_) helper->Finish();
}

void ExecutableGraph::Launch(Stream& stream) {
  if (last_launch_ != nullptr) PostWait(stream, last_launch_);
  Work work;
  work.what = "graph";
  work.always = true;  // its nodes check by themselves
  work.device = stream.device;
  work.run = [this, launch = ++launches_, points = PointsOfLaunch()] { Run(launch, points); };
  for (const Node& node : nodes_) {
    work.touches.insert(work.touches.end(), node.work.touches.begin(), node.work.touches.end());
  }
  Post(stream, std::move(work));
  last_launch_ = Mark(stream);
}

// As if each event were recorded, or waited for, by the call that launches the graph.
ExecutableGraph::Points ExecutableGraph::PointsOfLaunch() const {
  Points points(nodes_.size());
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].event == nullptr) continue;
    Event& event = GetEvent(nodes_[node].event, "cudaGraphLaunch");
    if (nodes_[node].type == NodeType::kEventRecord) {
      event.last = NewPoint();
      event.capture_id = 0;
    }
    points[node] = event.last;
  }
  return points;
}

void ExecutableGraph::Run(std::uint32_t launch, const Points& points) {
  for (std::size_t chain = 1; chain < chains_.size(); ++chain) {
    Work work;
    work.what = "branch of a graph";
    work.always = true;
    work.run = [this, chain, launch, points] { RunChain(chain, launch, points); };
    helpers_[chain - 1]->Post(std::move(work));
  }
  if (!chains_.empty()) RunChain(0, launch, points);
  for (Signal& done : chain_done_) done.WaitFor(launch);
}

void ExecutableGraph::RunChain(std::size_t chain, std::uint32_t launch, const Points& points) {
  for (const std::size_t index : chains_[chain]) {
    const Node& node = nodes_[index];
    for (const std::size_t before : node.after) node_done_[before].WaitFor(launch);
    CountOne(Counting().graph_nodes);
    if (node.event == nullptr) {
      Perform(node.work);
    } else if (node.type == NodeType::kEventRecord) {
      points[index]->Reach();
    } else if (points[index] != nullptr) {
      points[index]->signal.WaitFor(1);
    }
    node_done_[index].Reach(launch);
  }
  chain_done_[chain].Reach(launch);
}

}  // namespace gaccd::standin
