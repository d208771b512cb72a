// Conformance of the operations that add: all-reduce and reduce-scatter.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tests/ranks/conformance_cases.h"
#include "tests/ranks/ragged.h"

namespace gaccd::tests {
namespace {

template <typename T>
void Fill(std::span<T> data, int rank) {
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = RankElement<T>(rank, i);
}

template <typename T>
void ExpectSum(Notes& notes, std::span<const T> found, int ranks, std::size_t first,
               std::string_view what) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const T expected = SumOver<T>(ranks, first + i);
    if (found[i] == expected) continue;
    return notes.Expect(false, what, " of ", found.size(), " ", Name(DTypeOf<T>), ": element ", i,
                        " is ", found[i], ", expected ", expected);
  }
}

template <typename T>
void ExpectUnchanged(Notes& notes, std::span<const T> in, int rank, std::string_view what) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i] == RankElement<T>(rank, i)) continue;
    return notes.Expect(false, what, " changed element ", i, " of its input");
  }
}

// One all-reduce out of place and one in place, with a guard after the output.
template <typename T>
Status CheckOneSize(Communicator& comm, Notes& notes, std::size_t count) {
  std::vector<T> in(count);
  Fill(std::span(in), comm.rank());
  std::vector<T> out(count + 1, T{77});
  GACCD_RETURN_IF_ERROR(
      comm.AllReduceSum(View(std::span<const T>(in)), View(std::span(out).first(count))));
  ExpectSum(notes, std::span<const T>(out).first(count), comm.size(), 0, "all-reduce");
  notes.Expect(out[count] == T{77}, "all-reduce wrote past its output of ", count);
  ExpectUnchanged(notes, std::span<const T>(in), comm.rank(), "all-reduce");

  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(std::span(in)), View(std::span(in))));
  ExpectSum(notes, std::span<const T>(in), comm.size(), 0, "all-reduce in place");
  return Status::Ok();
}

template <typename T>
Status CheckScatter(Communicator& comm, Notes& notes, const std::vector<std::int64_t>& counts) {
  const auto total = static_cast<std::size_t>(std::reduce(counts.begin(), counts.end()));
  const auto rank = static_cast<std::size_t>(comm.rank());
  const auto mine = static_cast<std::size_t>(counts[rank]);
  const auto first = static_cast<std::size_t>(
      std::reduce(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank)));
  std::vector<T> in(total);
  Fill(std::span(in), comm.rank());
  std::vector<T> out(mine + 1, T{77});
  GACCD_RETURN_IF_ERROR(
      comm.ReduceScatter(View(std::span<const T>(in)), counts, View(std::span(out).first(mine))));
  ExpectSum(notes, std::span<const T>(out).first(mine), comm.size(), first, "reduce-scatter");
  notes.Expect(out[mine] == T{77}, "reduce-scatter wrote past its output of ", mine);
  ExpectUnchanged(notes, std::span<const T>(in), comm.rank(), "reduce-scatter");
  return Status::Ok();
}

// `data`: room for all.
Status CheckScatterInPlace(Communicator& comm, Notes& notes,
                           const std::vector<std::int64_t>& counts, std::span<float> data) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  const auto first =
      static_cast<std::size_t>(std::reduce(counts.begin(), counts.begin() + comm.rank()));
  const auto own = data.subspan(first, static_cast<std::size_t>(counts[rank]));
  Fill(data, comm.rank());
  GACCD_RETURN_IF_ERROR(comm.ReduceScatter(View(data), counts, View(own)));
  ExpectSum(notes, std::span<const float>(own), comm.size(), first, "reduce-scatter in place");
  ExpectUnchanged(notes, std::span<const float>(data.first(first)), comm.rank(),
                  "reduce-scatter in place");
  return Status::Ok();
}

// Notes a difference of `bits` between ranks.
Status ExpectSameEverywhere(Communicator& comm, Notes& notes, std::span<const float> bits) {
  std::int64_t digest = 0x1234567;
  for (const float value : bits) {
    std::uint32_t word = 0;
    std::memcpy(&word, &value, sizeof(word));
    digest =
        static_cast<std::int64_t>((static_cast<std::uint64_t>(digest) ^ word) * 0x100000001b3ULL);
  }
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(comm.size()), 1);
  std::vector<std::int64_t> digests(ones.size());
  GACCD_RETURN_IF_ERROR(comm.AllGather(View(std::span<const std::int64_t>(&digest, 1)), ones,
                                       View(std::span(digests))));
  for (std::size_t r = 0; r < digests.size(); ++r) {
    notes.Expect(digests[r] == digest, "rank ", r, " has another result than rank ", comm.rank());
  }
  return Status::Ok();
}

}  // namespace

Status CheckAllReduceSizes(Communicator& comm, const ConformanceOptions& options) {
  Notes notes;
  for (const std::size_t count : {0UL, 1UL, 2UL, 13UL, 16UL, 314UL, 4097UL}) {
    GACCD_RETURN_IF_ERROR(CheckOneSize<float>(comm, notes, count));
    GACCD_RETURN_IF_ERROR(CheckOneSize<double>(comm, notes, count));
    GACCD_RETURN_IF_ERROR(CheckOneSize<std::int32_t>(comm, notes, count));
    GACCD_RETURN_IF_ERROR(CheckOneSize<std::int64_t>(comm, notes, count));
  }
  GACCD_RETURN_IF_ERROR(CheckOneSize<float>(comm, notes, options.largest));
  return notes.status();
}

Status CheckAllReduceMemory(Communicator& comm, const ConformanceOptions& options) {
  Notes notes;
  const std::size_t count = options.largest;
  GACCD_ASSIGN_OR_RETURN(const auto first, comm.Allocate(count * sizeof(float)));
  GACCD_ASSIGN_OR_RETURN(const auto second, comm.Allocate(count * sizeof(float)));
  const std::span<float> a(static_cast<float*>(first->data()), count);
  const std::span<float> b(static_cast<float*>(second->data()), count);
  std::vector<float> plain(count);

  Fill(a, comm.rank());
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(a), View(a)));
  ExpectSum(notes, std::span<const float>(a), comm.size(), 0, "in place, allocated");

  // A part of the memory, not at its start, as a bucket is; the rest stays as it is.
  Fill(a, comm.rank());
  const std::size_t skip = count / 3;
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(a.subspan(skip)), View(a.subspan(skip))));
  notes.Expect(skip == 0 || a[skip - 1] == RankElement<float>(comm.rank(), skip - 1),
               "all-reduce of a part wrote before the part");
  ExpectSum(notes, std::span<const float>(a).subspan(skip), comm.size(), skip, "part, allocated");

  Fill(a, comm.rank());
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(a), View(b)));
  ExpectSum(notes, std::span<const float>(b), comm.size(), 0, "allocated to allocated");
  ExpectUnchanged(notes, std::span<const float>(a), comm.rank(), "allocated to allocated");

  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(a), View(std::span(plain))));
  ExpectSum(notes, std::span<const float>(plain), comm.size(), 0, "allocated to plain");

  Fill(std::span(plain), comm.rank());
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(std::span(plain)), View(b)));
  ExpectSum(notes, std::span<const float>(b), comm.size(), 0, "plain to allocated");
  ExpectUnchanged(notes, std::span<const float>(plain), comm.rank(), "plain to allocated");
  return notes.status();
}

Status CheckAllReduceBits(Communicator& comm, const ConformanceOptions& /*options*/) {
  Notes notes;
  const std::size_t count = 10'007;
  std::mt19937 random(static_cast<std::uint32_t>(comm.rank()) + 1);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> in(count);
  for (float& value : in) value = uniform(random);
  std::vector<double> exact(in.begin(), in.end());
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(std::span(exact)), View(std::span(exact))));

  std::vector<float> first(count);
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(std::span(in)), View(std::span(first))));
  GACCD_RETURN_IF_ERROR(ExpectSameEverywhere(comm, notes, first));
  const int repeats = comm.topology().nodes == 1 ? 3 : 0;
  for (int again = 0; again < repeats; ++again) {
    std::vector<float> second(count);
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(std::span(in)), View(std::span(second))));
    notes.Expect(std::memcmp(first.data(), second.data(), count * sizeof(float)) == 0,
                 "the same sum came out with other bits");
  }
  // Each addition of a float sum is wrong by at most half a unit in the last place of a partial
  // sum, which is below the number of ranks here.
  const double bound = std::ldexp(1.0, -24) * comm.size() * comm.size();
  for (std::size_t i = 0; i < count; ++i) {
    const double error = std::abs(static_cast<double>(first[i]) - exact[i]);
    notes.Expect(error <= bound, "element ", i, " is wrong by ", error, ", bound ", bound);
  }
  return notes.status();
}

// ((rank 0 + rank 1) + rank 2) + ... in f32: the bits of ranks as threads and as processes alike.
Status CheckSumInRankOrder(Communicator& comm, const ConformanceOptions& options) {
  const bool host = comm.name() == "threads" || comm.name() == "mpi";
  if (!host || comm.topology().nodes > 1) return Status::Ok();
  constexpr std::size_t kMany = 20'000;
  Notes notes;
  const auto value = [](int rank, std::size_t i) {
    return std::sin(static_cast<float>(i + 1) * static_cast<float>(2 * rank + 1));
  };
  for (const std::size_t count : {std::size_t{100}, std::min(options.largest, kMany)}) {
    GACCD_ASSIGN_OR_RETURN(const auto memory, comm.Allocate(count * sizeof(float)));
    const std::span<float> shared(static_cast<float*>(memory->data()), count);
    std::vector<float> in(count);
    for (std::size_t i = 0; i < count; ++i) in[i] = value(comm.rank(), i);
    std::ranges::copy(in, shared.begin());
    std::vector<float> out(count);
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(shared), View(shared)));
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(std::span(in)), View(std::span(out))));
    std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()), 0);
    counts[0] = static_cast<std::int64_t>(count);
    std::vector<float> scattered(comm.rank() == 0 ? count : 0);
    GACCD_RETURN_IF_ERROR(
        comm.ReduceScatter(View(std::span(in)), counts, View(std::span(scattered))));
    // Other ranks look at the other elements.
    const auto step = static_cast<std::size_t>(comm.size());
    for (auto i = static_cast<std::size_t>(comm.rank()); i < count; i += step) {
      float sum = value(0, i);
      for (int rank = 1; rank < comm.size(); ++rank) sum += value(rank, i);
      notes.Expect(shared[i] == sum && out[i] == sum && (comm.rank() > 0 || scattered[i] == sum),
                   "element ", i, " of ", count, " is ", shared[i], " and ", out[i],
                   ", expected in rank order ", sum);
    }
  }
  return notes.status();
}

Status CheckReduceScatterRagged(Communicator& comm, const ConformanceOptions& options) {
  Notes notes;
  for (const auto& counts : RaggedCounts(comm.size(), LargeCount(options))) {
    GACCD_RETURN_IF_ERROR(CheckScatter<float>(comm, notes, counts));
    GACCD_RETURN_IF_ERROR(CheckScatter<double>(comm, notes, counts));
    GACCD_RETURN_IF_ERROR(CheckScatter<std::int32_t>(comm, notes, counts));
    GACCD_RETURN_IF_ERROR(CheckScatter<std::int64_t>(comm, notes, counts));
    std::vector<float> own(static_cast<std::size_t>(std::reduce(counts.begin(), counts.end())));
    GACCD_RETURN_IF_ERROR(CheckScatterInPlace(comm, notes, counts, own));
    if (own.empty()) continue;
    // In memory where communicators need no copies.
    GACCD_ASSIGN_OR_RETURN(const auto memory, comm.Allocate(own.size() * sizeof(float)));
    const std::span shared(static_cast<float*>(memory->data()), own.size());
    GACCD_RETURN_IF_ERROR(CheckScatterInPlace(comm, notes, counts, shared));
  }
  return notes.status();
}

}  // namespace gaccd::tests
