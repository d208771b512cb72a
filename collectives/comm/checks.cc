#include "collectives/comm/checks.h"

#include <functional>
#include <limits>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

Status Wrong(const char* operation, const std::string& what) {
  return {ErrorKind::kInternal, StrCat(operation, ": ", what)};
}

const char* MemoryKindName(MemoryKind memory) {
  return memory == MemoryKind::kHost ? "host memory" : "device memory";
}

Status CheckMemory(const char* operation, const char* name, const ConstBuffer& buffer,
                   MemoryKind memory) {
  if (buffer.memory != memory) {
    return Wrong(operation, StrCat("'", name, "' must be ", MemoryKindName(memory), ", found ",
                                   MemoryKindName(buffer.memory)));
  }
  if (buffer.data == nullptr && buffer.count > 0) {
    return Wrong(operation, StrCat("'", name, "' has ", buffer.count, " elements but no memory"));
  }
  return Status::Ok();
}

Status CheckSummable(const char* operation, DType dtype) {
  if (!IsSummed(dtype)) {
    return Wrong(operation, StrCat("expected f32, f64, i32, i64 or bf16, found ", Name(dtype),
                                   ", which is not summed"));
  }
  return Status::Ok();
}

Status CheckSameType(const char* operation, const ConstBuffer& in, const MutableBuffer& out) {
  if (in.dtype != out.dtype) {
    return Wrong(operation,
                 StrCat("'out' must be ", Name(in.dtype), " as 'in' is, found ", Name(out.dtype)));
  }
  return Status::Ok();
}

bool Overlap(const ConstBuffer& in, const MutableBuffer& out) {
  if (in.count == 0 || out.count == 0) return false;
  const auto* in_begin = static_cast<const std::byte*>(in.data);
  const auto* out_begin = static_cast<const std::byte*>(out.data);
  const std::less<> before;
  return before(in_begin, out_begin + out.bytes()) && before(out_begin, in_begin + in.bytes());
}

// The sum of the counts, or the error if they are invalid.
Result<std::size_t> Total(const char* operation, std::span<const std::int64_t> counts, int size) {
  if (counts.size() != static_cast<std::size_t>(size)) {
    return Wrong(operation,
                 StrCat("expected ", size, " counts, one for each rank, found ", counts.size()));
  }
  std::int64_t total = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] < 0 || counts[r] > std::numeric_limits<std::int64_t>::max() - total) {
      return Wrong(operation,
                   StrCat("count of rank ", r, " is negative or the sum overflows: ", counts[r]));
    }
    total += counts[r];
  }
  return static_cast<std::size_t>(total);
}

Status CheckCount(const char* operation, const char* name, std::size_t expected,
                  std::size_t found) {
  if (expected == found) return Status::Ok();
  return Wrong(operation, StrCat("'", name, "' must have ", expected, " elements, found ", found));
}

// Start of the part of this rank.
const void* RankPart(const ConstBuffer& whole, std::span<const std::int64_t> counts, int rank) {
  if (whole.count == 0) return whole.data;
  return static_cast<const std::byte*>(whole.data) + PartOffset(counts, rank) * SizeOf(whole.dtype);
}

}  // namespace

Status CheckAllReduce(const ConstBuffer& in, const MutableBuffer& out, MemoryKind memory) {
  constexpr const char* kOp = "all-reduce";
  GACCD_RETURN_IF_ERROR(CheckMemory(kOp, "in", in, memory));
  GACCD_RETURN_IF_ERROR(CheckMemory(kOp, "out", out, memory));
  GACCD_RETURN_IF_ERROR(CheckSummable(kOp, in.dtype));
  GACCD_RETURN_IF_ERROR(CheckSameType(kOp, in, out));
  GACCD_RETURN_IF_ERROR(CheckCount(kOp, "out", in.count, out.count));
  if (in.data != out.data && Overlap(in, out)) {
    return Wrong(kOp, "'in' and 'out' must be the same memory or apart, found a partial overlap");
  }
  return Status::Ok();
}

Status CheckAllGather(const ConstBuffer& in, std::span<const std::int64_t> counts,
                      const MutableBuffer& out, int rank, int size, MemoryKind memory) {
  constexpr const char* kOp = "all-gather";
  GACCD_RETURN_IF_ERROR(CheckMemory(kOp, "in", in, memory));
  GACCD_RETURN_IF_ERROR(CheckMemory(kOp, "out", out, memory));
  GACCD_RETURN_IF_ERROR(CheckSameType(kOp, in, out));
  GACCD_ASSIGN_OR_RETURN(const std::size_t total, Total(kOp, counts, size));
  GACCD_RETURN_IF_ERROR(CheckCount(
      kOp, "in", static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]), in.count));
  GACCD_RETURN_IF_ERROR(CheckCount(kOp, "out", total, out.count));
  if (in.data != RankPart(out, counts, rank) && Overlap(in, out)) {
    return Wrong(kOp, "'in' must be this rank's part of 'out' or apart, found another overlap");
  }
  return Status::Ok();
}

Status CheckReduceScatter(const ConstBuffer& in, std::span<const std::int64_t> counts,
                          const MutableBuffer& out, int rank, int size, MemoryKind memory) {
  constexpr const char* kOp = "reduce-scatter";
  GACCD_RETURN_IF_ERROR(CheckMemory(kOp, "in", in, memory));
  GACCD_RETURN_IF_ERROR(CheckMemory(kOp, "out", out, memory));
  GACCD_RETURN_IF_ERROR(CheckSummable(kOp, in.dtype));
  GACCD_RETURN_IF_ERROR(CheckSameType(kOp, in, out));
  GACCD_ASSIGN_OR_RETURN(const std::size_t total, Total(kOp, counts, size));
  GACCD_RETURN_IF_ERROR(CheckCount(kOp, "in", total, in.count));
  GACCD_RETURN_IF_ERROR(CheckCount(
      kOp, "out", static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]), out.count));
  if (out.data != RankPart(in, counts, rank) && Overlap(in, out)) {
    return Wrong(kOp, "'out' must be this rank's part of 'in' or apart, found another overlap");
  }
  return Status::Ok();
}

Status CheckBroadcast(const MutableBuffer& buffer, int root, int size, MemoryKind memory) {
  constexpr const char* kOp = "broadcast";
  GACCD_RETURN_IF_ERROR(CheckMemory(kOp, "buffer", buffer, memory));
  if (root < 0 || root >= size) {
    return Wrong(kOp, StrCat("root must be 0..", size - 1, ", found ", root));
  }
  return Status::Ok();
}

Status CheckMessage(const char* operation, const ConstBuffer& message, MemoryKind memory, int peer,
                    int rank, int size) {
  GACCD_RETURN_IF_ERROR(CheckMemory(operation, "message", message, memory));
  if (peer < 0 || peer >= size || peer == rank) {
    return Wrong(operation, StrCat("the other rank must be 0..", size - 1, " and not ", rank,
                                   ", found ", peer));
  }
  return Status::Ok();
}

std::size_t PartOffset(std::span<const std::int64_t> counts, int rank) {
  std::int64_t offset = 0;
  for (int r = 0; r < rank; ++r) offset += counts[static_cast<std::size_t>(r)];
  return static_cast<std::size_t>(offset);
}

}  // namespace gaccd
