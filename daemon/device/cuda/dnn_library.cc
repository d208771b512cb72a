#include "daemon/device/cuda/dnn_library.h"

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

std::string ToText(const ConvSpec& spec) {
  const ConvSize& z = spec.size;
  const char* const pass = spec.pass == ConvPass::kForward         ? ""
                           : spec.pass == ConvPass::kInputGradient ? "gradient of the input of a "
                                                                   : "gradient of the weight of a ";
  const auto pair = [](const ConvSize::Pair& of) { return StrCat(of[0], " x ", of[1]); };
  return StrCat(pass, "convolution of ", z.images, " images of ", pair(z.image), ", ", z.in, " -> ",
                z.out, " channels in ", Name(spec.dtype), ", kernel ", pair(z.kernel),
                z.groups > 1 ? StrCat(", ", z.groups, " groups") : "", ", stride ", pair(z.stride),
                ", padding ", pair(z.padding), ", dilation ", pair(z.dilation),
                spec.deterministic ? ", deterministic" : "");
}

Status Check(const ConvSpec& spec) {
  const ConvSize& z = spec.size;
  const auto wrong = [&](std::string_view expected) {
    return Status(ErrorKind::kInternal, StrCat(ToText(spec), ": expected ", expected));
  };
  if (z.images < 1 || z.in < 1 || z.out < 1 || z.groups < 1) return wrong("sizes of at least 1");
  if (z.in % z.groups != 0 || z.out % z.groups != 0) return wrong("channels that groups divide");
  if (spec.dtype != DType::kBF16 && spec.dtype != DType::kFP16) return wrong("bf16 or fp16");
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t covered = z.dilation[i] * (z.kernel[i] - 1) + 1;
    const std::int64_t result = (z.image[i] + 2 * z.padding[i] - covered) / z.stride[i] + 1;
    if (z.result[i] != result || result < 1) return wrong(StrCat("a result of ", result));
  }
  return Status::Ok();
}

}  // namespace gaccd
