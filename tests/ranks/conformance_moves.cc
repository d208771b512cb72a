// Conformance of the operations that move data: all-gather, broadcast, barrier, and many in a row.
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/ranks/conformance_cases.h"
#include "tests/ranks/ragged.h"

namespace gaccd::tests {
namespace {

template <typename T>
std::vector<T> MakeRankData(int rank, std::size_t count) {
  std::vector<T> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = RankElement<T>(rank, i);
  return data;
}

template <typename T>
Status CheckGather(Communicator& comm, Notes& notes, const std::vector<std::int64_t>& counts) {
  const auto total = static_cast<std::size_t>(std::reduce(counts.begin(), counts.end()));
  const auto in = MakeRankData<T>(
      comm.rank(), static_cast<std::size_t>(counts[static_cast<std::size_t>(comm.rank())]));
  std::vector<T> out(total + 1, T{77});
  GACCD_RETURN_IF_ERROR(
      comm.AllGather(View(std::span<const T>(in)), counts, View(std::span(out).first(total))));
  std::vector<T> expected;
  for (int r = 0; r < comm.size(); ++r) {
    const auto part =
        MakeRankData<T>(r, static_cast<std::size_t>(counts[static_cast<std::size_t>(r)]));
    expected.insert(expected.end(), part.begin(), part.end());
  }
  expected.push_back(T{77});
  notes.Expect(out == expected, "all-gather of ", total, " ", Name(DTypeOf<T>),
               " has wrong rows, or wrote past its output");
  notes.Expect(in == MakeRankData<T>(comm.rank(), in.size()), "all-gather changed its input");
  return Status::Ok();
}

// apart: this rank gives its part in other memory.
Status CheckGatherInto(Communicator& comm, Notes& notes, const std::vector<std::int64_t>& counts,
                       std::span<float> data, bool apart) {
  std::vector<float> expected;
  std::vector<float> other;
  std::span<float> own;
  std::ranges::fill(data, 77.0F);
  for (int r = 0; r < comm.size(); ++r) {
    const auto part =
        MakeRankData<float>(r, static_cast<std::size_t>(counts[static_cast<std::size_t>(r)]));
    if (r == comm.rank()) {
      other = part;
      own = apart ? std::span(other) : data.subspan(expected.size(), part.size());
      std::ranges::copy(part, own.begin());
    }
    expected.insert(expected.end(), part.begin(), part.end());
  }
  GACCD_RETURN_IF_ERROR(comm.AllGather(View(own), counts, View(data)));
  notes.Expect(std::ranges::equal(data, expected), "all-gather ", apart ? "into" : "in",
               " the memory of its output: ", data.size(), " elements, wrong rows");
  return Status::Ok();
}

template <typename T>
Status CheckFromRoot(Communicator& comm, Notes& notes, int root, std::size_t count) {
  std::vector<T> data = MakeRankData<T>(comm.rank(), count + 1);
  GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span(data).first(count)), root));
  std::vector<T> expected = MakeRankData<T>(root, count);
  expected.push_back(RankElement<T>(comm.rank(), count));
  notes.Expect(data == expected, "broadcast of ", count, " ", Name(DTypeOf<T>), " from rank ", root,
               " has wrong data, or wrote past it");
  return Status::Ok();
}

std::int64_t NowNanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

Status CheckAllGatherRagged(Communicator& comm, const ConformanceOptions& options) {
  Notes notes;
  for (const auto& counts : RaggedCounts(comm.size(), LargeCount(options))) {
    GACCD_RETURN_IF_ERROR(CheckGather<float>(comm, notes, counts));
    GACCD_RETURN_IF_ERROR(CheckGather<double>(comm, notes, counts));
    GACCD_RETURN_IF_ERROR(CheckGather<std::int32_t>(comm, notes, counts));
    GACCD_RETURN_IF_ERROR(CheckGather<std::int64_t>(comm, notes, counts));
    GACCD_RETURN_IF_ERROR(CheckGather<std::uint8_t>(comm, notes, counts));
    std::vector<float> own(static_cast<std::size_t>(std::reduce(counts.begin(), counts.end())));
    GACCD_RETURN_IF_ERROR(CheckGatherInto(comm, notes, counts, own, /*apart=*/false));
    if (own.empty()) continue;
    // In memory where communicators need no copies; of the last rank only the input is elsewhere.
    GACCD_ASSIGN_OR_RETURN(const auto memory, comm.Allocate(own.size() * sizeof(float)));
    const std::span shared(static_cast<float*>(memory->data()), own.size());
    GACCD_RETURN_IF_ERROR(CheckGatherInto(comm, notes, counts, shared, /*apart=*/false));
    GACCD_RETURN_IF_ERROR(CheckGatherInto(comm, notes, counts, shared,
                                          /*apart=*/comm.rank() + 1 == comm.size()));
  }
  return notes.status();
}

Status CheckBroadcastRoots(Communicator& comm, const ConformanceOptions& options) {
  Notes notes;
  for (int root = 0; root < comm.size(); ++root) {
    for (const std::size_t count : {0UL, 1UL, 13UL, 4097UL}) {
      GACCD_RETURN_IF_ERROR(CheckFromRoot<float>(comm, notes, root, count));
      GACCD_RETURN_IF_ERROR(CheckFromRoot<double>(comm, notes, root, count));
      GACCD_RETURN_IF_ERROR(CheckFromRoot<std::int32_t>(comm, notes, root, count));
      GACCD_RETURN_IF_ERROR(CheckFromRoot<std::int64_t>(comm, notes, root, count));
      GACCD_RETURN_IF_ERROR(CheckFromRoot<std::uint8_t>(comm, notes, root, count));
    }
  }
  GACCD_RETURN_IF_ERROR(CheckFromRoot<float>(comm, notes, comm.size() - 1, options.largest));
  return notes.status();
}

// No rank may leave the barrier before the last one has come to it. Ranks share one machine in
// these tests, and with it the clock.
Status CheckBarrierOrder(Communicator& comm, const ConformanceOptions& /*options*/) {
  Notes notes;
  for (int late = 0; late < comm.size(); ++late) {
    if (comm.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    std::int64_t came = NowNanoseconds();
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    const std::int64_t left = NowNanoseconds();
    GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span(&came, 1)), late));
    notes.Expect(left >= came, "left the barrier ", came - left, " ns before rank ", late,
                 " came to it");
  }
  return notes.status();
}

// Small operations without a pause: a rank that is ahead must not disturb one that is behind.
// To neighbours on both sides, of which one may be both: several at once, of other sizes, before
// anything is received.
Status CheckMessages(Communicator& comm, const ConformanceOptions& options) {
  Notes notes;
  const int ranks = comm.size();
  if (ranks == 1 || comm.name() == "nccl") return notes.status();
  const std::vector<std::size_t> sizes = {1, 0, static_cast<std::size_t>(LargeCount(options)), 7};
  const auto peers = {(comm.rank() + 1) % ranks, (comm.rank() + ranks - 1) % ranks};
  for (int round = 0; round < 3; ++round) {
    for (const int to : peers) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        auto data = MakeRankData<float>(comm.rank() + 10 * round, sizes[i]);
        GACCD_RETURN_IF_ERROR(comm.Send(View(std::span<const float>(data)), to));
        std::ranges::fill(data, 77.0F);  // it was copied
      }
    }
    for (const int from : peers) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        std::vector<float> data(sizes[i] + 1, 77.0F);
        GACCD_RETURN_IF_ERROR(comm.Receive(View(std::span(data).first(sizes[i])), from));
        auto expected = MakeRankData<float>(from + 10 * round, sizes[i]);
        expected.push_back(77.0F);
        notes.Expect(data == expected, "message ", i, " of rank ", from, " in round ", round,
                     ": wrong values");
      }
    }
    GACCD_RETURN_IF_ERROR(comm.FlushSends());
    GACCD_RETURN_IF_ERROR(comm.Barrier());
  }
  return notes.status();
}

Status CheckManyInARow(Communicator& comm, const ConformanceOptions& /*options*/) {
  Notes notes;
  const int ranks = comm.size();
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(ranks), 1);
  std::vector<std::int64_t> gathered(ones.size());
  for (int round = 0; round < 100; ++round) {
    if (round % 10 == 3 && round / 10 % ranks == comm.rank()) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    std::int64_t sum = comm.rank() + round;
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(std::span(&sum, 1)), View(std::span(&sum, 1))));
    notes.Expect(sum == std::int64_t{ranks} * (ranks - 1) / 2 + std::int64_t{ranks} * round,
                 "round ", round, ": wrong sum ", sum);

    const std::int64_t mine = comm.rank() * 1000 + round;
    GACCD_RETURN_IF_ERROR(comm.AllGather(View(std::span<const std::int64_t>(&mine, 1)), ones,
                                         View(std::span(gathered))));
    std::int64_t scattered = 0;
    GACCD_RETURN_IF_ERROR(comm.ReduceScatter(View(std::span<const std::int64_t>(gathered)), ones,
                                             View(std::span(&scattered, 1))));
    notes.Expect(scattered == mine * ranks, "round ", round, ": gather and scatter gave ",
                 scattered, ", expected ", mine * ranks);

    std::int64_t word = mine;
    GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span(&word, 1)), round % ranks));
    notes.Expect(word == (round % ranks) * 1000 + round, "round ", round, ": broadcast gave ",
                 word);
  }
  return notes.status();
}

}  // namespace gaccd::tests
