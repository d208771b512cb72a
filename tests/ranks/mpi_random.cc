// Many random operations in a row on the MPI communicator, with ranks that come late at random:
// what finds a missing barrier, or memory that is written again while somebody still reads it.
//   rank_process random OPERATIONS CROWDED [node of rank 0, of rank 1, ...]
// All ranks draw the same operations and sizes from one seed. A result is looked at right after the
// operation, from its end (what is finished last), and overwritten at once.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <thread>
#include <vector>

#include "collectives/bootstrap/mpi_session.h"
#include "tests/ranks/rank_data.h"
#include "tests/ranks/rank_process.h"

namespace gaccd::tests {
namespace {

constexpr std::size_t kLargest = 150'000;

class RandomOperations {
 public:
  RandomOperations(Communicator& comm, CommMemory& shared)
      : comm_(comm),
        shared_(static_cast<float*>(shared.data()), kLargest),
        own_(kLargest),
        result_(kLargest * static_cast<std::size_t>(comm.size())),
        delays_(static_cast<unsigned>(comm.rank())) {}

  Status Run(int operations) {
    for (int i = 0; i < operations; ++i) {
      const auto kind = common_() % 7;
      // Mostly small, sometimes large.
      const std::size_t count = common_() % (common_() % 4 == 0 ? kLargest : 3000);
      salt_ = i % 1000;
      if (delays_() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      GACCD_RETURN_IF_ERROR(RunOne(static_cast<int>(kind), count)
                                .WithContext(StrCat("operation ", i, " of kind ", kind, " with ",
                                                    count, " elements, rank ", comm_.rank())));
    }
    return Status::Ok();
  }

 private:
  // Small whole numbers that differ by rank, place and operation.
  float Value(int rank, std::size_t i) const {
    return static_cast<float>((i % 101) * static_cast<std::size_t>(rank + 1) +
                              static_cast<std::size_t>(salt_));
  }
  float Sum(std::size_t i) const {
    const int n = comm_.size();
    return static_cast<float>((i % 101) * static_cast<std::size_t>(n * (n + 1) / 2) +
                              static_cast<std::size_t>(n * salt_));
  }
  void Fill(std::span<float> data) const {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = Value(comm_.rank(), i);
  }
  template <typename Expected>
  static Status Check(std::span<const float> data, Expected expected) {
    Status status;
    for (std::size_t i = data.size(); i-- > 0;) {
      if (data[i] == expected(i) || !status.ok()) continue;
      status = {ErrorKind::kInternal, StrCat("element ", i, " of ", data.size(), " is ", data[i],
                                             ", expected ", expected(i))};
    }
    return status;
  }

  Status Reduce(std::span<float> in, std::span<float> out) {
    Fill(in);
    GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(View(std::span<const float>(in)), View(out)));
    Status status = Check(out, [&](std::size_t i) { return Sum(i); });
    std::ranges::fill(out, -1.0F);
    return status;
  }

  // The same on all ranks; some may be none.
  std::vector<std::int64_t> Counts(std::size_t count) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(comm_.size()));
    for (std::int64_t& c : counts) {
      c = static_cast<std::int64_t>(common_() % (count / counts.size() + 1));
    }
    return counts;
  }

  Status Gather(std::size_t count) {
    const std::vector<std::int64_t> counts = Counts(count);
    const auto own = std::span(own_).first(
        static_cast<std::size_t>(counts[static_cast<std::size_t>(comm_.rank())]));
    Fill(own);
    std::size_t total = 0;
    for (const std::int64_t c : counts) total += static_cast<std::size_t>(c);
    const auto out = (common_() % 2 == 0 ? std::span(result_) : shared_).first(total);
    GACCD_RETURN_IF_ERROR(comm_.AllGather(View(std::span<const float>(own)), counts, View(out)));
    std::size_t first = 0;
    Status status;
    for (int r = 0; r < comm_.size(); ++r) {
      const auto part =
          out.subspan(first, static_cast<std::size_t>(counts[static_cast<std::size_t>(r)]));
      const Status found = Check(part, [&](std::size_t i) { return Value(r, i); });
      if (status.ok()) status = found;
      first += part.size();
    }
    std::ranges::fill(out, -1.0F);
    return status;
  }

  Status Scatter(std::size_t count) {
    const std::vector<std::int64_t> counts = Counts(count);
    std::size_t total = 0;
    std::size_t begin = 0;
    for (int r = 0; r < comm_.size(); ++r) {
      if (r == comm_.rank()) begin = total;
      total += static_cast<std::size_t>(counts[static_cast<std::size_t>(r)]);
    }
    const auto in = std::span(own_).first(total);
    Fill(in);
    const auto out = std::span(result_).first(
        static_cast<std::size_t>(counts[static_cast<std::size_t>(comm_.rank())]));
    GACCD_RETURN_IF_ERROR(comm_.ReduceScatter(View(std::span<const float>(in)), counts, View(out)));
    std::ranges::fill(in, -1.0F);
    Status status = Check(out, [&](std::size_t i) { return Sum(begin + i); });
    std::ranges::fill(out, -1.0F);
    return status;
  }

  Status Broadcast(std::size_t count) {
    const int root = static_cast<int>(common_() % static_cast<unsigned>(comm_.size()));
    const auto data = std::span(own_).first(count);
    Fill(data);
    GACCD_RETURN_IF_ERROR(comm_.Broadcast(View(data), root));
    Status status = Check(data, [&](std::size_t i) { return Value(root, i); });
    std::ranges::fill(data, -1.0F);
    return status;
  }

  Status RunOne(int kind, std::size_t count) {
    const auto shared = shared_.first(count);
    const auto own = std::span(own_).first(count);
    switch (kind) {
      case 0:
        return Reduce(shared, shared);
      case 1:
        return Reduce(own, own);
      case 2:
        return Reduce(own, shared);
      case 3:
        return Gather(count);
      case 4:
        return Scatter(count);
      case 5:
        return Broadcast(count);
      default:
        return comm_.Barrier();
    }
  }

  Communicator& comm_;
  std::span<float> shared_;
  std::vector<float> own_;
  std::vector<float> result_;
  std::mt19937 common_{20240229};
  std::mt19937 delays_;
  int salt_ = 0;
};

// CPU time that this process has used.
double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// The last rank comes half a second late; those that wait for it, in one node or between nodes, do
// not take cores that others need meanwhile.
Status WaitWithoutACore(Communicator& comm) {
  const bool late = comm.rank() + 1 == comm.size();
  double one = 1;
  const double before = CpuSeconds();
  if (late) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  GACCD_RETURN_IF_ERROR(
      comm.AllReduceSum(View(std::span<const double>(&one, 1)), View(std::span(&one, 1))));
  const double used = CpuSeconds() - before;
  if (used < 0.25) return Status::Ok();
  return {ErrorKind::kInternal,
          StrCat("rank ", comm.rank(), " has used ", used, " s of a core in a wait of 0.5 s")};
}

Status RunRank(std::span<const int> args) {
  GACCD_ASSIGN_OR_RETURN(const auto session, MpiSession::Start({}, ProcessEnvironment()));
  FakeNode fake = {session->facts().node_key, session->facts().host, args[1] != 0};
  const auto index = 2 + static_cast<std::size_t>(session->facts().rank);
  if (index < args.size()) fake = {args[index], StrCat("fake", args[index]), args[1] != 0};
  const CommOptions options = {.bound = std::chrono::seconds(20), .segment_elements = 20'000};
  GACCD_ASSIGN_OR_RETURN(const auto comm, MakeMpi(*session, options, fake));
  GACCD_ASSIGN_OR_RETURN(const auto shared, comm->Allocate(kLargest * sizeof(float)));
  Status status = RandomOperations(*comm, *shared).Run(args[0]);
  if (status.ok() && args[1] != 0) status = WaitWithoutACore(*comm);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    comm->Abort(static_cast<int>(status.kind()));
  }
  return status;
}

}  // namespace
}  // namespace gaccd::tests

int gaccd::tests::MpiRandom(int argc, char** argv) {
  std::vector<int> args;
  for (int i = 1; i < argc; ++i) args.push_back(std::atoi(argv[i]));
  if (args.size() < 2) return static_cast<int>(gaccd::ErrorKind::kUsage);
  const gaccd::Status status = gaccd::tests::RunRank(args);
  return status.ok() ? 0 : static_cast<int>(status.kind());
}
