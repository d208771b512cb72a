#include "tests/standin/capture.h"

#include <algorithm>
#include <map>

#include "tests/standin/faults.h"

namespace gaccd::standin {
namespace {

struct Captures {
  std::map<std::uint64_t, Capture*> active;
  std::uint64_t ids = 0;
};

Captures& Get() {
  static auto* captures = new Captures;
  return *captures;
}

void Include(std::vector<std::size_t>& nodes, const std::vector<std::size_t>& more) {
  for (const std::size_t node : more) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  }
}

// All nodes that `last` come after, themselves included.
std::vector<bool> Before(const Graph& graph, const std::vector<std::size_t>& last) {
  std::vector<bool> before(graph.nodes.size());
  for (const std::size_t node : last) before[node] = true;
  for (std::size_t node = graph.nodes.size(); node-- > 0;) {
    if (!before[node]) continue;
    for (const std::size_t earlier : graph.nodes[node].after) before[earlier] = true;
  }
  return before;
}

bool AllJoined(const Capture& capture) {
  const std::vector<bool> before = Before(*capture.graph, capture.origin->frontier);
  for (const Stream* stream : capture.streams) {
    for (const std::size_t node : stream->frontier) {
      if (!before[node]) return false;
    }
  }
  return true;
}

}  // namespace

cudaError_t Invalidate(Capture& capture, cudaError_t why) {
  capture.invalid = true;
  return why;
}

cudaError_t AddNode(Stream& stream, Node node) {
  Capture& capture = *stream.capture;
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  node.after = stream.frontier;
  capture.graph->nodes.push_back(std::move(node));
  stream.frontier = {capture.graph->nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t JoinCapture(Stream& stream, const Event& event) {
  Capture* capture = FindCapture(event.capture_id);
  if (capture == nullptr) {
    // The graph is closed: nothing outside may depend on its inside.
    if (stream.capture != nullptr)
      return Invalidate(*stream.capture, cudaErrorStreamCaptureIsolation);
    return cudaErrorCapturedEvent;
  }
  if (stream.capture != nullptr && stream.capture != capture) {
    Invalidate(*stream.capture, cudaErrorStreamCaptureMerge);
    return Invalidate(*capture, cudaErrorStreamCaptureMerge);
  }
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (stream.legacy) return Invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  if (stream.capture == nullptr) {
    stream.capture = capture;
    stream.frontier.clear();
    capture->streams.insert(&stream);
  }
  Include(stream.frontier, event.capture_nodes);
  return cudaSuccess;
}

Capture* FindCapture(std::uint64_t id) {
  const auto found = Get().active.find(id);
  return found == Get().active.end() ? nullptr : found->second;
}

cudaStreamCaptureMode& ModeOfThisThread() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

cudaError_t CheckUnsafe() {
  if (ModeOfThisThread() == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  bool safe = true;
  for (const auto& [id, capture] : Get().active) {
    const bool here = capture->thread == std::this_thread::get_id();
    if (capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (!here && capture->mode != cudaStreamCaptureModeGlobal) continue;
    if (!here && ModeOfThisThread() == cudaStreamCaptureModeThreadLocal) continue;
    capture->invalid = true;
    safe = false;
  }
  return safe ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

Capture* BeginCapture(Stream& stream, cudaStreamCaptureMode mode) {
  auto* capture = new Capture;
  capture->id = ++Get().ids;
  capture->graph = new Graph;
  capture->origin = &stream;
  capture->thread = std::this_thread::get_id();
  capture->mode = mode;
  capture->streams.insert(&stream);
  stream.capture = capture;
  stream.frontier.clear();
  Get().active[capture->id] = capture;
  return capture;
}

cudaError_t EndCapture(Stream& stream, Graph** graph) {
  Capture* capture = stream.capture;
  cudaError_t error = cudaSuccess;
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;  // its own thread can still end it
  }
  if (capture->origin != &stream) return Invalidate(*capture, cudaErrorStreamCaptureUnmatched);
  if (capture->invalid) {
    error = cudaErrorStreamCaptureInvalidated;
  } else if (!AllJoined(*capture)) {
    error = cudaErrorStreamCaptureUnjoined;
  }
  for (Stream* member : capture->streams) {
    member->capture = nullptr;
    member->frontier.clear();
  }
  if (error == cudaSuccess) {
    *graph = capture->graph;
  } else {
    delete capture->graph;
  }
  Get().active.erase(capture->id);
  delete capture;
  return error;
}

}  // namespace gaccd::standin
