// What every communicator must do, as functions over one: the same cases run on single, on threads
// and on MPI processes.
//
// Every rank of the communicator calls the same function. A rank that finds a wrong value notes it
// and continues, so that the others are not left waiting; the first note is returned at the end.
// The expected values are whole numbers, so that sums are exact and are compared with ==.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd::tests {

struct ConformanceOptions {
  // Largest number of elements reduced; smaller for communicators with tiny segments.
  std::size_t largest = 669'706;
};

struct ConformanceCase {
  std::string_view name;
  Status (*run)(Communicator&, const ConformanceOptions&);
};

[[nodiscard]] std::span<const ConformanceCase> ConformanceCases();

// All cases, one after another, without barriers between them. The error names case and rank.
[[nodiscard]] Status RunConformance(Communicator& comm, const ConformanceOptions& options = {});

}  // namespace gaccd::tests
