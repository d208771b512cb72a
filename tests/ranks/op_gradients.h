// Gradients of collective operations against finite differences, over any communicator.
//
// The objective is computed in double by all ranks together. Every element of the input of every
// rank is moved by +h and -h; the difference of the objective must be what Backward says, to 1e-8.
// Losses and inputs differ by rank. Every rank of the communicator calls the same function.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd::testing {

enum class Loss : std::uint8_t {
  kPerRank,     // J = sum over ranks of L_r(y_r)
  kReplicated,  // J = L(y), the same y and L on every rank, counted once
  kSharded,     // J = L(y_0, y_1, ...): each rank has its rows of one y, and L is counted once
};

// An operation under test: sizes and the two directions. x, y, dy, dx have the sizes of this rank.
struct OpUnderTest {
  std::vector<std::int64_t> x_elements;  // by rank
  std::vector<std::int64_t> y_elements;  // by rank
  std::function<Status(ConstBuffer x, MutableBuffer y)> forward;
  std::function<Status(ConstBuffer dy, MutableBuffer dx)> backward;
};

// kInternal when Backward differs from the finite differences on any rank (every rank returns an
// error then), or when an input was changed.
[[nodiscard]] Status CheckGradient(Communicator& comm, Loss loss, const OpUnderTest& op);

struct GradientCase {
  std::string_view name;
  Status (*run)(Communicator&);
};

// Every operation of collectives/ops under both conventions, with ragged and empty rows.
[[nodiscard]] std::span<const GradientCase> GradientCases();
// Gradients that are wrong on two or more ranks, each as public projects have it: run() must fail.
[[nodiscard]] std::span<const GradientCase> WrongGradientCases();

}  // namespace gaccd::testing
