#include "daemon/device/cuda/sdpa.h"

#include "collectives/base/strings.h"

namespace gaccd {

std::string ToText(const SdpaSpec& spec) {
  return StrCat(spec.backward ? "gradient of attention of " : "attention of ", spec.sequences,
                " sequences of ", spec.length, " rows, ", spec.heads, " heads of ", spec.width,
                " values in ", Name(spec.dtype), spec.causal ? ", causal" : "",
                spec.lengths ? ", with lengths" : "",
                spec.backward && spec.deterministic ? ", deterministic" : "");
}

Status Check(const SdpaSpec& spec) {
  const auto wrong = [&](std::string_view expected) {
    return Status(ErrorKind::kInternal, StrCat(ToText(spec), ": expected ", expected));
  };
  if (spec.sequences < 1 || spec.heads < 1 || spec.length < 1 || spec.width < 1) {
    return wrong("sizes of at least 1");
  }
  if (spec.dtype != DType::kBF16 && spec.dtype != DType::kFP16) return wrong("bf16 or fp16");
  const std::int64_t row = spec.heads * spec.width;
  if (spec.step != row && spec.step != 3 * row) {
    return wrong(StrCat("rows at a distance of ", row, " or ", 3 * row, ", found ", spec.step));
  }
  return Status::Ok();
}

Status CheckWorkspace(const SdpaSpec& spec, std::int64_t bytes) {
  if (bytes <= kMaxSdpaWorkspace) return Status::Ok();
  return {ErrorKind::kUnavailable,
          StrCat("the ", ToText(spec), " needs a workspace of ", bytes >> 20, " MiB, at most ",
                 kMaxSdpaWorkspace >> 20, " are given; a smaller micro-batch helps",
                 spec.deterministic ? ", or a job that is not deterministic" : "")};
}

}  // namespace gaccd
