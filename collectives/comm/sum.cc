#include "collectives/comm/sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Up to this many inputs are summed in registers in one pass.
constexpr std::size_t kMaxFused = 4;
// More inputs go through a block of sums that stays in the L1 cache.
constexpr std::size_t kBlock = 2048;
constexpr std::size_t kLineElements = 16;

// Independent iterations: inputs and outputs are different memory, or the same element is read
// before it is written.
template <typename T, std::size_t kInputs, std::size_t kOutputs>
GACCD_SIMD_CLONES void SumFused(const T* const* inputs, T* const* outputs, std::size_t count) {
  std::array<const T*, kInputs> in;
  std::array<T*, kOutputs> out;
  for (std::size_t r = 0; r < kInputs; ++r) in[r] = inputs[r];
  for (std::size_t r = 0; r < kOutputs; ++r) out[r] = outputs[r];
  GACCD_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < count; ++i) {
    // Starts with the first input, as starting with +0 would turn a sum of -0 into +0.
    T sum = in[0][i];
    for (std::size_t r = 1; r < kInputs; ++r) sum += in[r][i];
    for (std::size_t r = 0; r < kOutputs; ++r) out[r][i] = sum;
  }
}

template <typename T>
GACCD_SIMD_CLONES void Add(const T* in, std::size_t count, T* sum) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < count; ++i) sum[i] += in[i];
}

// One input is copied bit by bit, so that a group of one changes nothing, not even a NaN.
void CopyRange(const void* input, std::size_t in_first, std::span<void* const> outputs,
               std::size_t out_first, std::size_t count, std::size_t width) {
  for (void* output : outputs) {
    const auto* from = static_cast<const std::byte*>(input) + in_first * width;
    auto* to = static_cast<std::byte*>(output) + out_first * width;
    if (from != to && count > 0) std::memcpy(to, from, count * width);
  }
}

float LoadBf16(std::uint16_t stored) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(stored) << 16);
}
std::uint16_t StoreBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// Block by block through a temporary, because an output may be an input that is still needed.
void SumBf16(std::span<const void* const> inputs, std::size_t in_first,
             std::span<void* const> outputs, std::size_t out_first, std::size_t count) {
  std::array<float, kBlock> sums;
  std::array<std::uint16_t, kBlock> stored;
  for (std::size_t done = 0; done < count; done += kBlock) {
    const std::size_t n = std::min(kBlock, count - done);
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      const auto* in = static_cast<const std::uint16_t*>(inputs[r]) + in_first + done;
      for (std::size_t i = 0; i < n; ++i) {
        sums[i] = r == 0 ? LoadBf16(in[i]) : sums[i] + LoadBf16(in[i]);
      }
    }
    for (std::size_t i = 0; i < n; ++i) stored[i] = StoreBf16(sums[i]);
    for (void* output : outputs) {
      auto* out = static_cast<std::uint16_t*>(output) + out_first + done;
      std::memcpy(out, stored.data(), n * sizeof(std::uint16_t));
    }
  }
}

template <typename T>
class Summation {
 public:
  Summation(std::span<const void* const> inputs, std::size_t in_first,
            std::span<void* const> outputs, std::size_t out_first)
      : inputs_(inputs), in_first_(in_first), outputs_(outputs), out_first_(out_first) {}

  void Run(std::size_t count) const {
    const std::size_t in = inputs_.size();
    if (in <= kMaxFused && (outputs_.size() == in || outputs_.size() == 1)) return Fused(count);
    for (std::size_t done = 0; done < count; done += kBlock) {
      Block(done, std::min(kBlock, count - done));
    }
  }

 private:
  using Sum = void (*)(const T* const*, T* const*, std::size_t);

  [[nodiscard]] const T* in(std::size_t r, std::size_t i) const {
    return static_cast<const T*>(inputs_[r]) + in_first_ + i;
  }
  [[nodiscard]] T* out(std::size_t r, std::size_t i) const {
    return static_cast<T*>(outputs_[r]) + out_first_ + i;
  }
  static Sum ToOne(std::size_t inputs) {
    return inputs == 2 ? SumFused<T, 2, 1> : inputs == 3 ? SumFused<T, 3, 1> : SumFused<T, 4, 1>;
  }
  static Sum ToAll(std::size_t inputs) {
    return inputs == 2 ? SumFused<T, 2, 2> : inputs == 3 ? SumFused<T, 3, 3> : SumFused<T, 4, 4>;
  }

  void Fused(std::size_t count) const {
    std::array<const T*, kMaxFused> from{};
    std::array<T*, kMaxFused> to{};
    for (std::size_t r = 0; r < inputs_.size(); ++r) from[r] = in(r, 0);
    for (std::size_t r = 0; r < outputs_.size(); ++r) to[r] = out(r, 0);
    const Sum sum = outputs_.size() == 1 ? ToOne(inputs_.size()) : ToAll(inputs_.size());
    sum(from.data(), to.data(), count);
  }

  // Uses a temporary, because an output may be an input that is still needed.
  void Block(std::size_t first, std::size_t count) const {
    alignas(64) std::array<T, kBlock> sum;
    T* const sums = sum.data();
    const std::size_t fused = std::min(inputs_.size(), kMaxFused);
    std::array<const T*, kMaxFused> from{};
    for (std::size_t r = 0; r < fused; ++r) from[r] = in(r, first);
    ToOne(fused)(from.data(), &sums, count);
    for (std::size_t r = fused; r < inputs_.size(); ++r) Add(in(r, first), count, sums);
    for (std::size_t r = 0; r < outputs_.size(); ++r) {
      std::memcpy(out(r, first), sums, count * sizeof(T));
    }
  }

  std::span<const void* const> inputs_;
  std::size_t in_first_;
  std::span<void* const> outputs_;
  std::size_t out_first_;
};

}  // namespace

Status SumRange(DType dtype, std::span<const void* const> inputs, std::size_t in_first,
                std::span<void* const> outputs, std::size_t out_first, std::size_t count) {
  if (!IsSummed(dtype)) return {ErrorKind::kInternal, StrCat(Name(dtype), " is not summed")};
  if (inputs.size() == 1) {
    CopyRange(inputs[0], in_first, outputs, out_first, count, SizeOf(dtype));
    return Status::Ok();
  }
  const auto sum = [&]<typename T>(T) {
    Summation<T>(inputs, in_first, outputs, out_first).Run(count);
  };
  switch (dtype) {
    case DType::kF32:
      sum(float{});
      break;
    case DType::kF64:
      sum(double{});
      break;
    case DType::kI32:  // unsigned: signed overflow is undefined
      sum(std::uint32_t{});
      break;
    case DType::kI64:
      sum(std::uint64_t{});
      break;
    case DType::kBF16:
      SumBf16(inputs, in_first, outputs, out_first, count);
      break;
    case DType::kU8:
    case DType::kFP16:
      break;
  }
  return Status::Ok();
}

void WidenBf16(std::span<const std::uint16_t> in, std::span<float> out) {
  std::ranges::transform(in, out.begin(), LoadBf16);
}

void NarrowBf16(std::span<const float> in, std::span<std::uint16_t> out) {
  std::ranges::transform(in, out.begin(), StoreBf16);
}

Slice WorkerSlice(std::size_t count, int index, int workers) {
  const auto n = static_cast<std::size_t>(workers);
  const std::size_t lines = (count + kLineElements - 1) / kLineElements;
  const auto begin_of = [&](std::size_t i) {
    // Same value as lines * i / n, but cannot overflow.
    const std::size_t line = lines / n * i + lines % n * i / n;
    return std::min(count, line * kLineElements);
  };
  const std::size_t begin = begin_of(static_cast<std::size_t>(index));
  return {begin, begin_of(static_cast<std::size_t>(index) + 1) - begin};
}

}  // namespace gaccd
