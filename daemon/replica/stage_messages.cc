#include "daemon/replica/stage_messages.h"

#include <algorithm>

namespace gaccd {
namespace {

constexpr std::array kMessages = {Replica::Message::kReceived, Replica::Message::kSent,
                                  Replica::Message::kReceivedGradient,
                                  Replica::Message::kSentGradient};

}  // namespace

std::optional<ValueId> MessageValue(const StageEnds& ends, Replica::Message which) {
  switch (which) {
    case Replica::Message::kReceived:
      return ends.received;
    case Replica::Message::kSent:
      return ends.sent;
    case Replica::Message::kReceivedGradient:
      return ends.received_gradient;
    case Replica::Message::kSentGradient:
      return ends.sent_gradient;
  }
  return std::nullopt;
}

MutableBuffer ValueBuffer(const Graph& graph, std::optional<ValueId> value, void* data,
                          MemoryKind memory) {
  if (!value) return {.memory = memory};
  const ValueSpec& spec = graph.value(*value).spec;
  return {data, static_cast<std::size_t>(Elements(spec.shape)), spec.dtype, memory};
}

std::int64_t RingPlaces(Replica::Message which, std::int64_t in_flight) {
  constexpr std::int64_t kSending = 2;
  switch (which) {
    case Replica::Message::kReceived:
      return in_flight + 1;
    case Replica::Message::kReceivedGradient:
      return in_flight;
    case Replica::Message::kSent:
    case Replica::Message::kSentGradient:
      break;
  }
  return kSending;
}

std::int64_t StageRings::bytes() const {
  std::int64_t all = 0;
  for (const MessageRing& ring : rings) all += ring.places * ring.bytes;
  return all;
}

StageRings PlanStageRings(const PreparedGraphs& graphs, std::int64_t in_flight) {
  constexpr std::int64_t kAlignment = 256;
  StageRings made;
  for (const Replica::Message which : kMessages) {
    std::int64_t most = 0;
    graphs.ForEach([&](const auto& graph) {
      if constexpr (requires { graph.ids.ends; }) {
        if (const auto value = MessageValue(graph.ids.ends, which)) {
          most = std::max(most, graph.graph().value(*value).spec.bytes());
        }
      }
    });
    if (most == 0) continue;
    made.rings[static_cast<std::size_t>(which)] = {
        .bytes = (most + kAlignment - 1) / kAlignment * kAlignment,
        .places = RingPlaces(which, in_flight)};
  }
  return made;
}

}  // namespace gaccd
