// FunctionRow: what computes a function. Rows are next to their functions; function_table.h has
// all. Makers of the GPU's kernels are declared without CUDA's headers, so that rows can be read
// where gaccd is built without CUDA.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "daemon/autograd/kernel.h"

namespace gaccd {

class Fuser;            // fuse.h
struct CpuEnvironment;  // cpu_kernels.h
struct CudaRequest;     // cuda_request.h

// A function that makes a kernel: of the node alone, or with the environment.
struct CpuMaker {
  using OfNode = KernelResult (*)(const KernelRequest&);
  using OfEnvironment = KernelResult (*)(const KernelRequest&, const CpuEnvironment&);

  constexpr CpuMaker(std::nullptr_t) {}
  constexpr CpuMaker(OfNode make) : of_node(make) {}
  constexpr CpuMaker(OfEnvironment make) : of_environment(make) {}

  OfNode of_node = nullptr;
  OfEnvironment of_environment = nullptr;
  bool takes_bf16 = false;
  bool makes_bf16 = false;
};
using CudaMaker = KernelResult (*)(const CudaRequest&);

// Inputs, or outputs, may be bf16.
constexpr CpuMaker TakesBf16(CpuMaker maker) {
  maker.takes_bf16 = true;
  return maker;
}
constexpr CpuMaker MakesBf16(CpuMaker maker) {
  maker.makes_bf16 = true;
  return maker;
}

// Replaces the nodes it knows in a graph for the GPU (fuse.h).
using FusionRule = void (*)(Fuser&);

// kConfig where the GPU's kernel does not take these inputs. Asked for when a job is planned.
using CudaCheck = Status (*)(const Function&, std::span<const ValueSpec> inputs);

// Which operands of the GPU's kernel may be matrices with a stride (ValueSpec): bit i is operand i.
// Where a kernel can run in place, that of its output is that of its input.
struct StridedOperands {
  unsigned inputs = 0;
  unsigned outputs = 0;
};
inline constexpr StridedOperands kFirstInput{1, 0};
inline constexpr StridedOperands kFirstOfBoth{1, 1};

// The name, the maker of the kernel on the CPU, that on the GPU (null: there is none) and, if the
// function replaces several nodes, the rule that puts it into graphs for the GPU; and what
// the GPU's kernel refuses. Views need no row.
struct FunctionRow {
  std::string_view name;
  CpuMaker cpu;
  CudaMaker cuda;
  FusionRule fusion = nullptr;
  CudaCheck check = nullptr;
  StridedOperands strided = {};
};

}  // namespace gaccd
