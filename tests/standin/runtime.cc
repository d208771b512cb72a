#include "tests/standin/runtime.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "collectives/base/strings.h"
#include "tests/standin/allocations.h"
#include "tests/standin/capture.h"
#include "tests/standin/fatal.h"
#include "tests/standin/faults.h"

namespace gaccd::standin {
namespace {

struct Tables {
  std::mutex lock;
  std::uintptr_t handles = 0;
  std::map<std::uintptr_t, Stream*> streams;
  std::map<std::uintptr_t, Event*> events;
  std::array<Stream*, kMaxDevices> legacy{};
  int graphs = 0;
};

Tables& Get() {
  static auto* tables = new Tables;
  return *tables;
}

// Never an address, and never the same twice, so that a handle that was destroyed is found out.
std::uintptr_t NewHandle() { return 0x5d00000000000000U + ++Get().handles * 64; }

Stream& LegacyStream(int device) {
  Stream*& stream = Get().legacy[static_cast<std::size_t>(device)];
  if (stream == nullptr) {
    stream = new Stream;
    stream->device = device;
    stream->legacy = true;
    stream->worker = new Worker;
  }
  return *stream;
}

Work WaitWork(Point* point) {
  Work work;
  work.what = "wait";
  work.always = true;
  work.run = [point] { point->signal.WaitFor(1); };
  return work;
}

// The null stream waits for all streams without cudaStreamNonBlocking, and they for it.
void OrderWithLegacy(Stream& stream) {
  if ((stream.flags & cudaStreamNonBlocking) != 0) return;
  if (!stream.legacy) {
    Stream* legacy = Get().legacy[static_cast<std::size_t>(stream.device)];
    if (legacy != nullptr && !legacy->worker->Idle()) PostWait(stream, Mark(*legacy));
    return;
  }
  for (Stream* other : StreamsOnDevice(stream.device)) {
    if (other->legacy || (other->flags & cudaStreamNonBlocking) != 0) continue;
    if (!other->worker->Idle()) PostWait(stream, Mark(*other));
  }
}

}  // namespace

std::mutex& Lock() { return Get().lock; }

Stream& GetStream(cudaStream_t handle, const char* function) {
  if (handle == nullptr || handle == cudaStreamLegacy) return LegacyStream(CurrentDevice());
  const auto found = Get().streams.find(reinterpret_cast<std::uintptr_t>(handle));
  if (found == Get().streams.end()) {
    Fatal(StrCat(function, ": this stream does not exist (any more)"));
  }
  return *found->second;
}

Event& GetEvent(cudaEvent_t handle, const char* function) {
  const auto found = Get().events.find(reinterpret_cast<std::uintptr_t>(handle));
  if (found == Get().events.end()) {
    Fatal(StrCat(function, ": this event does not exist (any more)"));
  }
  return *found->second;
}

std::vector<Stream*> StreamsOnDevice(int device) {
  std::vector<Stream*> result;
  for (const auto& [handle, stream] : Get().streams) {
    if (stream->device == device) result.push_back(stream);
  }
  Stream* legacy = Get().legacy[static_cast<std::size_t>(device)];
  if (legacy != nullptr) result.push_back(legacy);
  return result;
}

Stream* AddStream(int device, unsigned flags, int priority) {
  auto* stream = new Stream;
  const std::uintptr_t handle = NewHandle();
  stream->handle = reinterpret_cast<cudaStream_t>(handle);
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  stream->worker = new Worker;
  Get().streams[handle] = stream;
  return stream;
}

void RemoveStream(Stream& stream) {
  stream.worker->Finish();
  Get().streams.erase(reinterpret_cast<std::uintptr_t>(stream.handle));
  delete &stream;
}

Event* AddEvent(int device, unsigned flags) {
  auto* event = new Event;
  const std::uintptr_t handle = NewHandle();
  event->handle = reinterpret_cast<cudaEvent_t>(handle);
  event->device = device;
  event->flags = flags;
  Get().events[handle] = event;
  return event;
}

void RemoveEvent(Event& event) {
  Get().events.erase(reinterpret_cast<std::uintptr_t>(event.handle));
  delete &event;
}

void CountGraphs(int difference) { Get().graphs += difference; }

void Post(Stream& stream, Work work) {
  OrderWithLegacy(stream);
  stream.worker->Post(std::move(work));
}

Point* Mark(Stream& stream) {
  Point* point = NewPoint();
  Work work;
  work.what = "mark";
  work.reach = point;
  stream.worker->Post(std::move(work));
  return point;
}

void PostWait(Stream& stream, Point* point) { stream.worker->Post(WaitWork(point)); }

cudaError_t Submit(Stream& stream, Work work, NodeType type) {
  work.device = stream.device;
  if (stream.capture != nullptr) return AddNode(stream, {std::move(work), type, {}, nullptr});
  Post(stream, std::move(work));
  return cudaSuccess;
}

std::string DescribeEverythingAlive() {
  std::string text = DescribeLive();
  const std::lock_guard lock(Lock());
  const Tables& tables = Get();
  if (!tables.streams.empty()) text += StrCat("\n  ", tables.streams.size(), " streams");
  if (!tables.events.empty()) text += StrCat("\n  ", tables.events.size(), " events");
  if (tables.graphs != 0) text += StrCat("\n  ", tables.graphs, " graphs");
  return text;
}

void WaitOnHost(Point* point) {
  CountOne(Counting().host_waits);
  point->signal.WaitFor(1);
}

cudaError_t SynchronizeDevice(int device) {
  std::vector<Point*> points;
  {
    const std::lock_guard lock(Lock());
    for (Stream* stream : StreamsOnDevice(device)) {
      if (stream->capture == nullptr) points.push_back(Mark(*stream));
    }
  }
  CountOne(Counting().host_waits);
  for (Point* point : points) point->signal.WaitFor(1);
  return DeviceError(device);
}

}  // namespace gaccd::standin
