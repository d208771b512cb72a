// Programs of tests that are started as processes, most by mpirun:
//   rank_process conformance|gradients|random|faults|golden|shard [argument...]
#include "tests/ranks/rank_process.h"

#include <cstdio>
#include <string_view>
#include <utility>

int main(int argc, char** argv) {
  using namespace gaccd::tests;
  constexpr std::pair<std::string_view, int (*)(int, char**)> kPrograms[] = {
      {"conformance", MpiConformance}, {"gradients", MpiGradients}, {"random", MpiRandom},
      {"faults", MpiFaultRanks},       {"golden", GoldenRanks},     {"shard", MpiShard},
  };
  for (const auto& [word, program] : kPrograms) {
    if (argc > 1 && argv[1] == word) return program(argc - 1, argv + 1);
  }
  std::fprintf(stderr,
               "usage: rank_process conformance|gradients|random|faults|golden|shard ...\n");
  return 64;
}
