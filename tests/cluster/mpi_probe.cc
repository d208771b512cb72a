// The smallest MPI program that says whether srun, PMIx and Open MPI work together: rank 0 prints
// "size S sum X", X the all-reduced sum of the ranks, and one line "rank R host H" for each rank.
// It tells a broken cluster from a broken gaccd.
#include <mpi.h>

#include <array>
#include <iostream>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);

  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);

  std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
  int length = 0;
  MPI_Get_processor_name(host.data(), &length);
  std::vector<std::array<char, MPI_MAX_PROCESSOR_NAME>> hosts(static_cast<std::size_t>(size));
  MPI_Gather(host.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, hosts.data(), MPI_MAX_PROCESSOR_NAME,
             MPI_CHAR, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    std::cout << "size " << size << " sum " << sum << '\n';
    for (int r = 0; r < size; ++r) {
      std::cout << "rank " << r << " host " << hosts[static_cast<std::size_t>(r)].data() << '\n';
    }
  }
  MPI_Finalize();
  return 0;
}
