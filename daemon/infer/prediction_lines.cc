#include "daemon/infer/prediction_lines.h"

#include <cstring>

#include "collectives/base/json.h"
#include "collectives/base/number_text.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

template <typename T>
void AppendNumber(const std::byte* at, std::string* text) {
  T value;
  std::memcpy(&value, at, sizeof value);
  *text += NumberText(value);
}

// Appends the values of all dimensions, and moves `at` after them.
void AppendValues(std::span<const std::int64_t> shape, DType dtype, const std::byte*& at,
                  std::string* text) {
  if (shape.empty()) {
    if (dtype == DType::kF32) {
      AppendNumber<float>(at, text);
    } else {
      AppendNumber<std::int32_t>(at, text);
    }
    at += SizeOf(dtype);
    return;
  }
  *text += '[';
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    if (i > 0) *text += ',';
    AppendValues(shape.subspan(1), dtype, at, text);
  }
  *text += ']';
}

}  // namespace

std::string PredictionLine(std::int64_t sample, std::string_view key, const Shape& shape,
                           DType dtype, std::span<const std::byte> values) {
  std::string text = StrCat("{\"sample\":", sample, ",\"", key, "\":");
  const std::byte* at = values.data();
  AppendValues(shape, dtype, at, &text);
  return text + "}\n";
}

std::string ClassLine(std::int64_t sample, std::int32_t number,
                      std::span<const std::string> names) {
  const auto at = static_cast<std::size_t>(number);
  const std::string name =
      at < names.size() ? StrCat(",\"name\":", Json(names[at]).Dump()) : std::string();
  return StrCat("{\"sample\":", sample, ",\"class\":", number, name, "}\n");
}

}  // namespace gaccd
