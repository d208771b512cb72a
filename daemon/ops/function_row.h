// FunctionRow: the kernels of a function. Rows are defined next to their functions and listed in
// function_table.h. Makers of GPU kernels are declared without CUDA's headers, so that rows can be
// read in builds without CUDA.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "daemon/autograd/kernel.h"

namespace gaccd {

class Fuser;            // fuse.h
struct CpuEnvironment;  // cpu_kernels.h
struct CudaRequest;     // cuda_request.h

// Functions that make a kernel: for the CPU from the node alone, or with the environment; for the
// GPU. `CpuMake MakeReluCpu, MakeReluGradientCpu;` declares two.
using CpuMake = KernelResult(const KernelRequest&);
using CpuMakeIn = KernelResult(const KernelRequest&, const CpuEnvironment&);
using CudaMake = KernelResult(const CudaRequest&);

struct CpuMaker {
  constexpr CpuMaker(std::nullptr_t) {}
  constexpr CpuMaker(CpuMake* make) : of_node(make) {}
  constexpr CpuMaker(CpuMakeIn* make) : of_environment(make) {}

  CpuMake* of_node = nullptr;
  CpuMakeIn* of_environment = nullptr;
  bool takes_bf16 = false;
  bool makes_bf16 = false;
};
using CudaMaker = CudaMake*;

// Marks that inputs, or outputs, may be bf16.
constexpr CpuMaker AcceptsBf16(CpuMaker maker) {
  maker.takes_bf16 = true;
  return maker;
}
constexpr CpuMaker MakesBf16(CpuMaker maker) {
  maker.makes_bf16 = true;
  return maker;
}

// Replaces nodes in a graph for the GPU (fuse.h).
using FusionRule = void (*)(Fuser&);

// kConfig if the GPU kernel does not support these inputs. Called when a job is planned.
using CudaCheck = Status (*)(const Function&, std::span<const ValueSpec> inputs);

// Which operands of the GPU kernel may be matrices with a stride (ValueSpec): bit i is operand i.
// For in-place kernels input and output have the same stride.
struct StridedOperands {
  unsigned inputs = 0;
  unsigned outputs = 0;
};
inline constexpr StridedOperands kFirstInput{1, 0};
inline constexpr StridedOperands kFirstOfBoth{1, 1};

// The name, the maker of the CPU kernel, that of the GPU kernel (null: none) and, if the function
// replaces several nodes, the rule that inserts it into graphs for the GPU; and the limits of the
// GPU kernel. Views need no row.
struct FunctionRow {
  std::string_view name;
  CpuMaker cpu;
  CudaMaker cuda;
  FusionRule fusion = nullptr;
  CudaCheck check = nullptr;
  StridedOperands strided = {};
};

// Kernels of the functions that autograd itself records (autograd/add.h).

CpuMake MakeAccumulateCpu, MakeAddCpu, MakeZerosCpu;
CudaMake MakeAccumulateCuda, MakeAddCuda, MakeZerosCuda;
inline constexpr FunctionRow kAutogradRows[] = {
    {"accumulate", MakeAccumulateCpu, MakeAccumulateCuda},
    {"add", MakeAddCpu, MakeAddCuda},
    {"zeros", MakeZerosCpu, MakeZerosCuda},
};

}  // namespace gaccd
