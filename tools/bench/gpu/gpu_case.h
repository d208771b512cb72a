// What gpu_bench measures: a case is prepared once and run many times, in turn with the peer.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "collectives/base/cuda.h"
#include "collectives/base/result.h"
#include "daemon/device/cuda/dnn_library.h"

namespace gaccd {

struct CublasLtApi;

// The words of a command, "micro=32 precision=bf16".
class CaseArguments {
 public:
  explicit CaseArguments(std::map<std::string, std::string> words) : words_(std::move(words)) {}
  // kUsage, naming it, when it is missing or no whole number >= 1.
  [[nodiscard]] Result<std::int64_t> Count(const std::string& name) const;
  // kUsage when it is none of the two; true for the second.
  [[nodiscard]] Result<bool> Either(const std::string& name, const std::string& first,
                                    const std::string& second) const;
  [[nodiscard]] std::string Text(const std::string& name) const;  // empty when missing

 private:
  std::map<std::string, std::string> words_;
};

class GpuCase {
 public:
  virtual ~GpuCase() = default;
  // Seconds of one piece of work: the median of many.
  virtual Result<double> Run() = 0;
  // The bytes of GPU memory that one piece has to read and write; 0 when that is not the measure.
  [[nodiscard]] virtual double bytes() const { return 0; }
  // A figure that shows that the work was done: a loss, a norm.
  [[nodiscard]] virtual double proof() const { return 0; }
};

using CasePtr = std::unique_ptr<GpuCase>;
using MadeCase = Result<CasePtr>;
MadeCase MakeCopyCase(const CaseArguments& arguments);     // way=memcpy|kernel bytes=
MadeCase MakeAdamWCase(const CaseArguments& arguments);    // precision=f32|bf16 elements=
MadeCase MakeNormCase(const CaseArguments& arguments);     // elements=
MadeCase MakeEntropyCase(const CaseArguments& arguments);  // precision=f32|bf16 rows= columns=
// The gradient of an embedding from bf16, added to what its table has: rows= columns= table=
// ids=random|equal. proof(): a value of it.
MadeCase MakeEmbeddingCase(const CaseArguments& arguments);
// The gradient of layer norm in bf16 plus that of a residual: rows= columns=. proof(): a value of
// it.
MadeCase MakeLayerNormCase(const CaseArguments& arguments);
// part=forward|input|weight|weight_in_out rows= in= out= precision=f32|tf32|bf16 choice=first|timed
// with=none|epilogue|kernel: GELU, its gradient, or for weights the bias gradient. proof(): the
// floating-point operations of the product.
MadeCase MakeGemmCase(const CaseArguments& arguments);
// Causal attention: part=forward|gradient sequences= length= heads= width= precision=bf16|fp16
// by=library|kernel bits=any|deterministic. proof(): its floating-point operations.
MadeCase MakeAttentionCase(const CaseArguments& arguments);
// model=mlp|gpt|bert precision=f32|bf16 micro= k= updates=; a transformer's vocabulary= context=
// layers= heads= width=; choice=first|timed, of the products' algorithms. 784-512-512-10 with SGD,
// or a transformer with AdamW; one piece is a micro-step, its share of reduction and optimiser
// included.
MadeCase MakeStepCase(const CaseArguments& arguments);

// The median of `repeats` times of what `enqueue` puts into the stream, after a warm-up.
Result<double> MedianSeconds(cudaStream_t stream, int repeats,
                             const std::function<Status()>& enqueue);
// GPU memory of random values; GPU memory with a copy of memory of the host.
Result<DeviceBuffer> RandomBuffer(std::size_t bytes, bool bf16, const char* what);
Result<DeviceBuffer> BufferOfOne(const void* value, std::size_t bytes, const char* what);
// The libraries of this machine, where null is cuBLASLt's: libraries_of_bench.cc; or stand-ins.
[[nodiscard]] const CublasLtApi* CublasLtOfBench();
[[nodiscard]] Result<DnnFactory> DnnOfBench();
// copy.cu. REQUIRES: a multiple of 16 bytes.
Status EnqueueCopy(cudaStream_t stream, const void* from, void* to, std::int64_t bytes);

}  // namespace gaccd
