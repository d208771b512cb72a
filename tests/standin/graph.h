// ExecutableGraph: a captured graph that can be launched again and again. Its nodes are laid out in
// chains; each chain has a thread (the first one the stream's), so what no edge orders really runs
// at the same time.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "tests/standin/runtime.h"

namespace gaccd::standin {

class ExecutableGraph {
 public:
  explicit ExecutableGraph(const Graph& graph);
  // Waits until it runs no more.
  ~ExecutableGraph();
  ExecutableGraph(const ExecutableGraph&) = delete;
  ExecutableGraph& operator=(const ExecutableGraph&) = delete;

  // Posts one run, after all earlier ones also of other streams. REQUIRES Lock().
  void Launch(Stream& stream);

 private:
  using Points = std::vector<Point*>;  // of the nodes that record or wait for an event, else null
  Points PointsOfLaunch() const;
  void Run(std::uint32_t launch, const Points& points);
  void RunChain(std::size_t chain, std::uint32_t launch, const Points& points);

  std::vector<Node> nodes_;
  std::vector<std::vector<std::size_t>> chains_;  // each in the order of capture: no circular waits
  std::vector<Worker*> helpers_;                  // of all chains but the first
  std::deque<Signal> node_done_;                  // reach the number of the launch
  std::deque<Signal> chain_done_;
  std::uint32_t launches_ = 0;
  Point* last_launch_ = nullptr;
};

}  // namespace gaccd::standin
