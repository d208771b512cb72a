// What a process of rank_process can be. argv[0] is the word that chose it; the result is the exit
// code.
#pragma once

namespace gaccd::tests {

int MpiConformance(int argc, char** argv);  // conformance: mpi_conformance.cc
int MpiGradients(int argc, char** argv);    // gradients: mpi_gradients.cc
int MpiRandom(int argc, char** argv);       // random: mpi_random.cc
int MpiFaultRanks(int argc, char** argv);   // faults: mpi_fault_ranks.cc
int MpiShard(int argc, char** argv);        // shard: mpi_shard.cc
int GoldenRanks(int argc, char** argv);     // golden: golden_ranks.cc

}  // namespace gaccd::tests
