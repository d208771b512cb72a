// The collectives themselves: what ends up where.
#include <bit>
#include <cstring>
#include <span>

#include "tests/standin/nccl/nccl_world.h"

namespace gaccd::standin {
namespace {

using Calls = std::vector<const NcclCall*>;

const std::byte* At(const void* data, std::size_t element, ncclDataType_t type) {
  return static_cast<const std::byte*>(data) + element * SizeOfNccl(type);
}
std::byte* At(void* data, std::size_t element, ncclDataType_t type) {
  return static_cast<std::byte*>(data) + element * SizeOfNccl(type);
}

// bf16, as NCCL computes with it: rounded after every step.
struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  explicit Half(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    bits = static_cast<std::uint16_t>((wide + 0x7fffU + ((wide >> 16) & 1U)) >> 16);
  }
  operator float() const {  // NOLINT
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

template <typename T>
std::vector<T> ReduceInRankOrder(const Calls& calls, std::size_t first, std::size_t count) {
  const T* start = static_cast<const T*>(calls.front()->in) + first;
  std::vector<T> result(start, start + count);
  for (const NcclCall* call : std::span(calls).subspan(1)) {
    const T* in = static_cast<const T*>(call->in) + first;
    for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<T>(result[i] + in[i]);
  }
  return result;
}

template <typename T>
void Reduce(const Calls& calls) {
  const NcclCall& first = *calls.front();
  const auto ranks = calls.size();
  const std::size_t whole = first.move == Move::kReduceScatter ? first.count * ranks : first.count;
  const std::vector<T> sum = ReduceInRankOrder<T>(calls, 0, whole);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (first.move == Move::kReduce && static_cast<int>(r) != first.root) continue;
    const std::size_t from = first.move == Move::kReduceScatter ? r * first.count : 0;
    std::memcpy(calls[r]->out, sum.data() + from, first.count * sizeof(T));
  }
}

void Gather(const Calls& calls) {
  const NcclCall& first = *calls.front();
  const std::size_t bytes = first.count * SizeOfNccl(first.type);
  // Rows are set aside: with buffers in place an output is the input of another.
  std::vector<std::byte> rows;
  for (const NcclCall* call : calls) {
    rows.insert(rows.end(), At(call->in, 0, call->type), At(call->in, 0, call->type) + bytes);
  }
  for (const NcclCall* call : calls) std::memcpy(call->out, rows.data(), rows.size());
}

void SendFromRoot(const Calls& calls) {
  const NcclCall& root = *calls[static_cast<std::size_t>(calls.front()->root)];
  const std::size_t bytes = root.count * SizeOfNccl(root.type);
  for (const NcclCall* call : calls) {
    if (call->out != root.in) std::memcpy(At(call->out, 0, call->type), root.in, bytes);
  }
}

void ReduceOfType(const Calls& calls) {
  switch (calls.front()->type) {
    case ncclFloat32:
      return Reduce<float>(calls);
    case ncclFloat64:
      return Reduce<double>(calls);
    case ncclInt32:
      return Reduce<std::int32_t>(calls);
    case ncclInt64:
      return Reduce<std::int64_t>(calls);
    case ncclBfloat16:
      return Reduce<Half>(calls);
    default:
      NcclFatal("a sum of a type that gaccd never sums");
  }
}

}  // namespace

std::size_t SizeOfNccl(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclBfloat16:
    case ncclFloat16:
      return 2;
    case ncclFloat32:
    case ncclInt32:
      return 4;
    case ncclFloat64:
    case ncclInt64:
      return 8;
    default:
      NcclFatal("a data type that gaccd never sends");
  }
}

void RunCall(const Calls& calls) {
  if (calls.front()->count == 0) return;
  switch (calls.front()->move) {
    case Move::kAllReduce:
    case Move::kReduceScatter:
    case Move::kReduce:
      return ReduceOfType(calls);
    case Move::kAllGather:
      return Gather(calls);
    case Move::kBroadcast:
      return SendFromRoot(calls);
    case Move::kSend:
    case Move::kReceive:
      break;  // in pairs
  }
}

}  // namespace gaccd::standin
