// Conformance of maxima, of sums of bf16, and of messages between two ranks.
#include <algorithm>
#include <bit>
#include <vector>

#include "tests/ranks/conformance_cases.h"

namespace gaccd::tests {
namespace {

using Bits = std::vector<std::uint16_t>;

std::uint16_t Bf16Of(float exact) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(exact) >> 16);
}
float FloatOf(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
MutableBuffer Bf16View(std::span<std::uint16_t> bits) {
  return {bits.data(), bits.size(), DType::kBF16, MemoryKind::kHost};
}

// Another rank has the largest value at every element; all are negative at some.
template <typename T>
T MaxElement(int rank, int ranks, std::size_t i) {
  const auto distance = static_cast<std::size_t>(rank) + i;
  const auto place = static_cast<T>(distance % static_cast<std::size_t>(ranks));
  return static_cast<T>(place * 3 - static_cast<T>(i % 100));
}

template <typename T>
Status CheckMaxOf(Communicator& comm, Notes& notes, std::size_t count) {
  std::vector<T> in(count);
  std::vector<T> out(count + 1, T{77});
  for (std::size_t i = 0; i < count; ++i) in[i] = MaxElement<T>(comm.rank(), comm.size(), i);
  const std::vector<T> before = in;
  const auto expected = [&](std::size_t i) {
    return static_cast<T>(static_cast<T>(comm.size() - 1) * 3 - static_cast<T>(i % 100));
  };
  GACCD_RETURN_IF_ERROR(
      comm.AllReduceMax(View(std::span<const T>(in)), View(std::span(out).first(count))));
  for (std::size_t i = 0; i < count; ++i) {
    notes.Expect(out[i] == expected(i), "maximum ", i, " of ", count, " ", Name(DTypeOf<T>), " is ",
                 out[i], ", expected ", expected(i));
  }
  notes.Expect(out[count] == T{77}, "wrote past its output of ", count);
  notes.Expect(in == before, "changed its input");
  GACCD_RETURN_IF_ERROR(comm.AllReduceMax(View(std::span(in)), View(std::span(in))));
  for (std::size_t i = 0; i < count; ++i) {
    notes.Expect(in[i] == expected(i), "in place: maximum ", i, " is ", in[i]);
  }
  return Status::Ok();
}

Status CheckMaxOfBf16(Communicator& comm, Notes& notes) {
  Bits values(100);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = Bf16Of(MaxElement<float>(comm.rank(), comm.size(), i));
  }
  GACCD_RETURN_IF_ERROR(comm.AllReduceMax(Bf16View(values), Bf16View(values)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float expected = static_cast<float>(comm.size() - 1) * 3 - static_cast<float>(i);
    notes.Expect(FloatOf(values[i]) == FloatOf(Bf16Of(expected)), "maximum ", i, " of bf16 is ",
                 FloatOf(values[i]));
  }
  return Status::Ok();
}

// Rank r sends to r + shift where that is a rank, or around when `ring`. Sizes differ by sender.
struct Step {
  int shift = 1;
  bool ring = false;
  std::size_t most = 0;
};

template <typename T>
Status CheckStep(Communicator& comm, Notes& notes, const Step& step) {
  const int ranks = comm.size();
  const auto peer = [&](int distance) {
    const int rank = comm.rank() + distance;
    if (step.ring) return ((rank % ranks) + ranks) % ranks;
    return rank >= 0 && rank < ranks ? rank : Communicator::kNobody;
  };
  const auto count_of = [&](int sender) {
    if (sender == Communicator::kNobody) return std::size_t{0};
    return (step.most + static_cast<std::size_t>(sender) * 7) % (step.most + 1);
  };
  const int to = peer(step.shift);
  const int from = peer(-step.shift);
  std::vector<T> in(to == Communicator::kNobody ? 0 : count_of(comm.rank()));
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = ElementOf<T>(comm.rank(), i);
  const std::size_t count = count_of(from);
  std::vector<T> out(count + 1, T{77});
  GACCD_RETURN_IF_ERROR(
      comm.SendReceive(View(std::span<const T>(in)), to, View(std::span(out).first(count)), from));
  for (std::size_t i = 0; i < count; ++i) {
    notes.Expect(out[i] == ElementOf<T>(from, i), "element ", i, " of ", count, " from rank ", from,
                 " is wrong");
  }
  notes.Expect(out[count] == T{77}, "wrote past its output of ", count);
  return Status::Ok();
}

}  // namespace

Status CheckAllReduceMax(Communicator& comm, const ConformanceOptions& options) {
  Notes notes;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{314},
                                  std::min<std::size_t>(options.largest, 4097)}) {
    GACCD_RETURN_IF_ERROR(CheckMaxOf<float>(comm, notes, count));
    GACCD_RETURN_IF_ERROR(CheckMaxOf<double>(comm, notes, count));
    GACCD_RETURN_IF_ERROR(CheckMaxOf<std::int32_t>(comm, notes, count));
    GACCD_RETURN_IF_ERROR(CheckMaxOf<std::int64_t>(comm, notes, count));
  }
  GACCD_RETURN_IF_ERROR(CheckMaxOfBf16(comm, notes));
  return notes.status();
}

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
    const Bits in(count, Bf16Of(comm.rank() == 0 ? 256.0F : 1.0F));
    Bits out(count + 1, 7);
    const ConstBuffer view{in.data(), count, DType::kBF16, MemoryKind::kHost};
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(view, Bf16View(std::span(out).first(count))));
    notes.Expect(out[count] == 7, "wrote past its output of ", count);
    if (!rounds_once || expected == 0) continue;
    for (std::size_t i = 0; i < count; ++i) {
      notes.Expect(FloatOf(out[i]) == expected, "sum ", i, " of ", count, " is ", FloatOf(out[i]),
                   ", expected ", expected);
    }
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), 0);
    counts.back() = static_cast<std::int64_t>(count);
    Bits part(comm.rank() == ranks - 1 ? count : 0);
    GACCD_RETURN_IF_ERROR(comm.ReduceScatter(view, counts, Bf16View(part)));
    notes.Expect(std::ranges::all_of(part, [&](std::uint16_t b) { return FloatOf(b) == expected; }),
                 "reduce-scatter of ", count, " gave a wrong sum");
  }
  return notes.status();
}

Status CheckSendReceive(Communicator& comm, const ConformanceOptions& options) {
  Notes notes;
  const std::size_t most = std::min<std::size_t>(options.largest, 4097);
  for (const Step& step : {Step{1, false, 5}, Step{1, true, most}, Step{-1, true, 13},
                           Step{2, false, most}, Step{0, true, 9}, Step{1, true, 0}}) {
    GACCD_RETURN_IF_ERROR(CheckStep<float>(comm, notes, step));
    GACCD_RETURN_IF_ERROR(CheckStep<std::int64_t>(comm, notes, step));
    GACCD_RETURN_IF_ERROR(CheckStep<std::uint8_t>(comm, notes, step));
  }
  return notes.status();
}

}  // namespace gaccd::tests
