// Conformance of sums of bf16.
#include <algorithm>
#include <bit>
#include <vector>

#include "tests/ranks/conformance_cases.h"

namespace gaccd::tests {
namespace {

using Bits = std::vector<std::uint16_t>;

std::uint16_t ToBf16Bits(float exact) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(exact) >> 16);
}
float ToFloatValue(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
MutableBuffer Bf16View(std::span<std::uint16_t> bits) {
  return {bits.data(), bits.size(), DType::kBF16, MemoryKind::kHost};
}

}  // namespace

// 256 + 1 + 1 ...: bf16 has no 257, so a sum that is rounded at every step stays at 256.
Status CheckBf16Sums(Communicator& comm, const ConformanceOptions& options) {
  Notes notes;
  const int ranks = comm.size();
  const bool rounds_once = comm.name() != "nccl";
  float sum = 256.0F + static_cast<float>(ranks - 1);
  if (static_cast<int>(sum) % 2 == 1) {  // a tie goes to the even one
    sum += static_cast<int>(sum) % 4 == 3 ? 1.0F : -1.0F;
  }
  const float expected = ranks > 128 ? 0 : sum;  // beyond 384 other ties come in
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{33},
                                  std::min<std::size_t>(options.largest, 4097)}) {
    const Bits in(count, ToBf16Bits(comm.rank() == 0 ? 256.0F : 1.0F));
    Bits out(count + 1, 7);
    const ConstBuffer view{in.data(), count, DType::kBF16, MemoryKind::kHost};
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(view, Bf16View(std::span(out).first(count))));
    notes.Expect(out[count] == 7, "wrote past its output of ", count);
    if (!rounds_once || expected == 0) continue;
    for (std::size_t i = 0; i < count; ++i) {
      notes.Expect(ToFloatValue(out[i]) == expected, "sum ", i, " of ", count, " is ",
                   ToFloatValue(out[i]), ", expected ", expected);
    }
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), 0);
    counts.back() = static_cast<std::int64_t>(count);
    Bits part(comm.rank() == ranks - 1 ? count : 0);
    GACCD_RETURN_IF_ERROR(comm.ReduceScatter(view, counts, Bf16View(part)));
    notes.Expect(
        std::ranges::all_of(part, [&](std::uint16_t b) { return ToFloatValue(b) == expected; }),
        "reduce-scatter of ", count, " gave a wrong sum");
  }
  return notes.status();
}

}  // namespace gaccd::tests
