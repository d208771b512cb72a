// All-reduce of fp32 over the ranks of one node: gaccd's communicator against MPI_Allreduce, in
// alternating bursts of the same processes.
//
//   mpirun -n 2 allreduce_bench [PAIRS]
//
// Rank 0 prints one JSON line per size and pair of bursts, with the median seconds of one call. A
// call takes as long as on its slowest rank. Before every call each rank writes its own data anew,
// as a backward pass would, and meets the others in a barrier before and after; all outside the
// clock. Every burst's last result is checked in all elements. gaccd works in place in memory from
// Allocate(), where the flat gradient lives. MPI works in ordinary memory, once in place and once
// into a second buffer: the faster one counts.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/bootstrap/mpi_session.h"
#include "collectives/comm/communicator.h"

namespace gaccd {
namespace {

// 669,706 elements are the gradient of 784-512-512-10: 2.68 MB.
constexpr std::size_t kElements[] = {1 << 14, 1 << 18, 669'706, 1 << 22, 1 << 24};
constexpr int kDefaultPairs = 7;
constexpr std::size_t kBurstBytes = std::size_t{1} << 29;  // of one burst's calls together

using Reduce = std::function<Status(std::span<float>)>;

// Small integers, so that the sum of any number of ranks is exact in fp32.
float InputValue(int rank, std::size_t i) {
  return static_cast<float>(rank + 1) * static_cast<float>(i % 8);
}

void Fill(std::span<float> data, int rank) {
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = InputValue(rank, i);
}

Status CheckSum(std::span<const float> data, int size) {
  const int factor = size * (size + 1) / 2;  // InputValue(r, i) = (r + 1) * InputValue(0, i)
  for (std::size_t i = 0; i < data.size(); ++i) {
    const float expected = static_cast<float>(factor) * InputValue(0, i);
    if (data[i] != expected) {
      return {ErrorKind::kInternal, "element " + std::to_string(i) + " is " +
                                        std::to_string(data[i]) + ", expected " +
                                        std::to_string(expected)};
    }
  }
  return Status::Ok();
}

// The median over the calls of the slowest rank's seconds; the same on all ranks.
// `sum` is where `reduce` leaves its result: `data` itself or another buffer.
Result<double> Burst(const Reduce& reduce, std::span<float> data, std::span<const float> sum,
                     int rank, int size, int calls) {
  std::vector<double> seconds;
  for (int call = 0; call < calls; ++call) {
    Fill(data, rank);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = std::chrono::steady_clock::now();
    GACCD_RETURN_IF_ERROR(reduce(data));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    seconds.push_back(took.count());
    // Where ranks share cores, a rank that is done must not write its next data while another one
    // still waits for a core to see that it is done, too: that would be in the other one's time.
    MPI_Barrier(MPI_COMM_WORLD);
  }
  GACCD_RETURN_IF_ERROR(CheckSum(sum, size));
  MPI_Allreduce(MPI_IN_PLACE, seconds.data(), calls, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

using PlainMemory = std::unique_ptr<float, decltype(&std::free)>;

PlainMemory AllocatePlain(std::size_t elements) {
  const std::size_t bytes = (elements * sizeof(float) + 4095) / 4096 * 4096;
  return {static_cast<float*>(std::aligned_alloc(4096, bytes)), &std::free};
}

Status BenchSize(Communicator& comm, std::size_t elements, int pairs) {
  const int rank = comm.rank();
  const int size = comm.size();
  GACCD_ASSIGN_OR_RETURN(const auto memory, comm.Allocate(elements * sizeof(float)));
  const std::span<float> ours(static_cast<float*>(memory->data()), elements);
  const PlainMemory plain_data = AllocatePlain(elements);
  const PlainMemory plain_sum = AllocatePlain(elements);
  const std::span<float> theirs(plain_data.get(), elements);
  const std::span<float> apart(plain_sum.get(), elements);

  const Reduce reduce_ours = [&comm](std::span<float> data) {
    return comm.AllReduceSum(View(std::span<const float>(data)), View(data));
  };
  const int count = static_cast<int>(elements);
  const Reduce mpi_in_place = [count](std::span<float> data) {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return Status::Ok();
  };
  const Reduce mpi_apart = [count, apart](std::span<float> data) {
    MPI_Allreduce(data.data(), apart.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return Status::Ok();
  };
  const auto burst = [rank, size](const Reduce& reduce, std::span<float> data,
                                  std::span<const float> sum, int calls) {
    return Burst(reduce, data, sum, rank, size, calls);
  };
  const std::size_t bytes = elements * sizeof(float);
  const int calls = static_cast<int>(std::clamp<std::size_t>(kBurstBytes / bytes, 8, 400));
  GACCD_RETURN_IF_ERROR(burst(reduce_ours, ours, ours, 3).status());  // warm up
  GACCD_RETURN_IF_ERROR(burst(mpi_in_place, theirs, theirs, 3).status());
  GACCD_RETURN_IF_ERROR(burst(mpi_apart, theirs, apart, 3).status());
  for (int pair = 0; pair < pairs; ++pair) {
    GACCD_ASSIGN_OR_RETURN(const double a, burst(reduce_ours, ours, ours, calls));
    GACCD_ASSIGN_OR_RETURN(const double in_place, burst(mpi_in_place, theirs, theirs, calls));
    GACCD_ASSIGN_OR_RETURN(const double aside, burst(mpi_apart, theirs, apart, calls));
    const double b = std::min(in_place, aside);
    if (rank == 0) {
      std::printf("{\"ranks\":%d,\"bytes\":%zu,\"calls\":%d,\"ours_s\":%.9f,\"peer_s\":%.9f}\n",
                  size, bytes, calls, a, b);
      std::fflush(stdout);
    }
  }
  return Status::Ok();
}

Status Bench(int pairs) {
  GACCD_ASSIGN_OR_RETURN(const auto session, MpiSession::Start({}, ProcessEnvironment()));
  GACCD_ASSIGN_OR_RETURN(const auto comm, MakeMpi(*session, CommOptions{}));
  for (const std::size_t elements : kElements) {
    GACCD_RETURN_IF_ERROR(BenchSize(*comm, elements, pairs));
  }
  return Status::Ok();
}

}  // namespace
}  // namespace gaccd

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : gaccd::kDefaultPairs;
  const gaccd::Status status = gaccd::Bench(pairs);
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "allreduce_bench: %s\n", status.message().c_str());
  return static_cast<int>(status.kind());
}
