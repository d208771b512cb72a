// Streams, events, captures and graphs and their handles. One lock guards them all; it is never
// held while something is waited for, and no worker takes it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/standin/signal.h"
#include "tests/standin/worker.h"

namespace gaccd::standin {

enum class NodeType { kKernel, kCopy, kHost, kEventRecord, kEventWait };

struct Node {
  Work work;
  NodeType type = NodeType::kKernel;
  std::vector<std::size_t> after;  // nodes that must be done before
  cudaEvent_t event = nullptr;     // of kEventRecord and kEventWait: looked up at each launch
};

struct Graph {
  std::vector<Node> nodes;  // a node comes after those it needs
};

struct Stream;

// One sequence from cudaStreamBeginCapture() to its end.
struct Capture {
  std::uint64_t id = 0;
  Graph* graph = nullptr;
  Stream* origin = nullptr;
  std::thread::id thread;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool invalid = false;
  std::set<Stream*> streams;
};

struct Stream {
  cudaStream_t handle = nullptr;
  int device = 0;
  unsigned flags = cudaStreamDefault;
  int priority = 0;
  bool legacy = false;  // the device's null stream
  Worker* worker = nullptr;
  Capture* capture = nullptr;
  std::vector<std::size_t> frontier;  // of the capture: the next node comes after these
};

struct Event {
  cudaEvent_t handle = nullptr;
  int device = 0;
  unsigned flags = cudaEventDefault;
  Point* last = nullptr;  // of the latest record; null: never recorded
  // Where a capture recorded it last; 0: not in a capture.
  std::uint64_t capture_id = 0;
  std::vector<std::size_t> capture_nodes;
};

std::mutex& Lock();

// REQUIRES Lock() for all below. An unknown or destroyed handle stops the process.
Stream& GetStream(cudaStream_t handle, const char* function);
Event& GetEvent(cudaEvent_t handle, const char* function);
std::vector<Stream*> StreamsOnDevice(int device);
Stream* AddStream(int device, unsigned flags, int priority);
void RemoveStream(Stream& stream);
Event* AddEvent(int device, unsigned flags);
void RemoveEvent(Event& event);
// Graphs and executable graphs are counted for the report of what is left.
void CountGraphs(int difference);

// After the stream's work, also in order with the null stream; never into a capture.
void Post(Stream& stream, Work work);
// A point after all that was posted.
Point* Mark(Stream& stream);
void PostWait(Stream& stream, Point* point);

// Waits as SetMaxPending() says; not in a capture, which runs nothing. The caller holds no lock.
void WaitForPlace(cudaStream_t handle, const char* what);
// Posts it, or makes it a node where the stream is capturing.
cudaError_t Submit(Stream& stream, Work work, NodeType type);

Capture* FindCapture(std::uint64_t id);  // null: it has ended
// Whether this thread may call what would not be seen by a capture. If not: the thread's captures
// are invalid now.
cudaError_t CheckUnsafe();

// Takes the lock itself.
std::string DescribeEverythingAlive();
// Both wait on the host, without the lock.
void WaitOnHost(Point* point);
cudaError_t SynchronizeDevice(int device);

}  // namespace gaccd::standin
