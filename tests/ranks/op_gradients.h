// Gradients of collective functions against finite differences, over any communicator.
//
// All ranks together compute the objective. Every element of the input of every rank is moved by +h
// and -h; the difference of the objective must be the gradient of the graph. Losses and inputs
// differ by rank. Every rank of the communicator calls the same function.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/autograd/graph.h"

namespace gaccd::testing {

enum class Loss : std::uint8_t {
  kPerRank,     // J = sum over ranks of L_r(y_r)
  kReplicated,  // J = L(y), the same y and L on every rank, counted once
  kSharded,     // J = L(y_0, y_1, ...): each rank has its rows of one y, and L is counted once
};

// Records what is under test on x, a parameter, and returns y.
using Record = std::function<Result<ValueId>(Graph& graph, ValueId x)>;

// shape: of x on this rank. kInternal when the gradient differs from the finite differences on any
// rank (every rank returns an error then), or when an input was changed.
[[nodiscard]] Status CheckGradient(Communicator& comm, Loss loss, const Shape& shape,
                                   const Record& record);

struct GradientCase {
  std::string_view name;
  Status (*run)(Communicator&);
};

// Every function of ops/collective.h under both conventions, with ragged and empty rows.
[[nodiscard]] std::span<const GradientCase> GradientCases();
// Gradients that are wrong on two or more ranks, each as public projects have it: run() must fail.
[[nodiscard]] std::span<const GradientCase> WrongGradientCases();

}  // namespace gaccd::testing
