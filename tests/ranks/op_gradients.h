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
#include "daemon/autograd/kernel.h"

namespace gaccd::tests {

enum class Loss : std::uint8_t {
  kPerRank,     // J = sum over ranks of L_r(y_r)
  kReplicated,  // J = L(y), the same y and L on every rank, counted once
  kSharded,     // J = L(y_0, y_1, ...): each rank has its rows of one y, and L is counted once
};

// Where the graphs run. Used by one rank.
class GradientDevice {
 public:
  virtual ~GradientDevice() = default;
  virtual Result<KernelFactory*> Kernels(Communicator& comm) = 0;  // live as long as the device
  // Memory of the device, aligned for any kernel, as long as the device lives.
  virtual Result<void*> Allocate(std::size_t bytes) = 0;
  // Wait for the device, and are done when they return.
  virtual Status Copy(void* to, const void* from, std::size_t bytes, bool to_device) = 0;
};
// The default: the CPU.
using MakeDevice = std::function<Result<std::unique_ptr<GradientDevice>>()>;
Result<std::unique_ptr<GradientDevice>> MakeCpuDevice();

struct GradientRanks {
  GradientRanks(Communicator& ranks, MakeDevice maker = MakeCpuDevice)  // NOLINT
      : comm(ranks), make_device(std::move(maker)) {}
  Communicator& comm;
  MakeDevice make_device;
};

// Records what is under test on x, a parameter, and returns y.
using Record = std::function<Result<ValueId>(Graph& graph, ValueId x)>;

// shape: of x on this rank. kInternal when the gradient differs from the finite differences on any
// rank (every rank returns an error then), or when an input was changed.
[[nodiscard]] Status CheckGradient(const GradientRanks& ranks, Loss loss, const Shape& shape,
                                   const Record& record);

struct GradientCase {
  std::string_view name;
  Status (*run)(const GradientRanks&);
};

// Every function of ops/collective/collective.h under both conventions, with ragged and empty rows.
[[nodiscard]] std::span<const GradientCase> GradientCases();
// Gradients that are wrong on two or more ranks, each as public projects have it: run() must fail.
[[nodiscard]] std::span<const GradientCase> WrongGradientCases();

}  // namespace gaccd::tests
