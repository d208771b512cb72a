#include "collectives/ops/local.h"

#include <cstring>
#include <functional>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"

namespace gaccd::collectives {
namespace {

GACCD_SIMD_CLONES void DivideF32(float* data, std::size_t count, double by) {
  // In double, because a count above 2^24 has no exact float.
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = static_cast<float>(static_cast<double>(data[i]) / by);
  }
}

GACCD_SIMD_CLONES void DivideF64(double* data, std::size_t count, double by) {
  for (std::size_t i = 0; i < count; ++i) data[i] /= by;
}

bool IsHostFloat(const ConstBuffer& buffer) {
  return buffer.memory == MemoryKind::kHost &&
         (buffer.dtype == DType::kF32 || buffer.dtype == DType::kF64);
}

}  // namespace

Status CheckApart(std::string_view operation, const ConstBuffer& in, const MutableBuffer& out) {
  if (!IsHostFloat(in) || !IsHostFloat(out) || in.dtype != out.dtype) {
    return {ErrorKind::kInternal,
            StrCat(operation, ": expected f32 or f64 in host memory, found ", Name(in.dtype),
                   in.memory == MemoryKind::kHost ? "" : " on a device", " and ", Name(out.dtype),
                   out.memory == MemoryKind::kHost ? "" : " on a device")};
  }
  const auto* in_begin = static_cast<const std::byte*>(in.data);
  const auto* out_begin = static_cast<const std::byte*>(out.data);
  const std::less<> before;
  if (in.count > 0 && out.count > 0 && before(in_begin, out_begin + out.bytes()) &&
      before(out_begin, in_begin + in.bytes())) {
    return {ErrorKind::kInternal,
            StrCat(operation, ": the output overlaps the input, which must not change")};
  }
  return Status::Ok();
}

Status CheckElements(std::string_view operation, std::string_view name, std::int64_t expected,
                     std::size_t found) {
  if (static_cast<std::size_t>(expected) == found) return Status::Ok();
  return {ErrorKind::kInternal,
          StrCat(operation, ": '", name, "' must have ", expected, " elements, found ", found)};
}

void Copy(const ConstBuffer& in, const MutableBuffer& out) {
  if (in.bytes() > 0) std::memcpy(out.data, in.data, in.bytes());
}

void Zero(const MutableBuffer& out) {
  if (out.bytes() > 0) std::memset(out.data, 0, out.bytes());
}

void DivideBy(const MutableBuffer& data, std::int64_t count) {
  const auto by = static_cast<double>(count);
  if (data.dtype == DType::kF32) {
    DivideF32(static_cast<float*>(data.data), data.count, by);
  } else {
    DivideF64(static_cast<double*>(data.data), data.count, by);
  }
}

ConstBuffer Part(const ConstBuffer& buffer, std::int64_t first, std::int64_t count) {
  ConstBuffer part = buffer;
  part.count = static_cast<std::size_t>(count);
  if (buffer.data != nullptr) {
    part.data = static_cast<const std::byte*>(buffer.data) +
                static_cast<std::size_t>(first) * SizeOf(buffer.dtype);
  }
  return part;
}

}  // namespace gaccd::collectives
