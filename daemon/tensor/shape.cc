#include "daemon/tensor/shape.h"

#include <algorithm>

#include "collectives/base/strings.h"

namespace gaccd {

std::int64_t Elements(const Shape& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return elements;
}

Status CheckShape(const Shape& shape, DType dtype) {
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 48;
  auto bytes = static_cast<std::int64_t>(SizeOf(dtype));
  for (const std::int64_t size : shape) {
    if (size < 0) {
      return {ErrorKind::kConfig,
              StrCat("shape ", ToString(shape), ": size ", size, " is negative")};
    }
    // An empty dimension counts as 1, so that every partial product fits too.
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes) ||
        bytes > kMaxBytes) {
      return {ErrorKind::kConfig, StrCat("shape ", ToString(shape), " does not fit 2^48 bytes")};
    }
  }
  return Status::Ok();
}

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

}  // namespace gaccd
