// What the tests on a GPU share. The same sources are also linked with the stand-ins of
// tests/standin, where everything runs on the CPU.
#pragma once

#include <span>
#include <string>

#include "collectives/comm/nccl_api.h"
#include "daemon/device/cuda/cublaslt_api.h"
#include "daemon/device/cuda/dnn_library.h"

namespace gaccd {

// null: the library of this machine.
[[nodiscard]] const CublasLtApi* CublasLtOfTest();
[[nodiscard]] const NcclApi* NcclOfTest();
// The library of attention in bf16 and fp16. kUnavailable, with the reason, where there is none.
[[nodiscard]] Result<DnnFactory> DnnOfTest();

// |found - expected| / |expected|, over all elements; NaN when any element is.
[[nodiscard]] double RelativeDifference(std::span<const float> found,
                                        std::span<const float> expected);

// A row of the table of tools/gpu-check: "expected <expected>, seen <seen>". Texts without quotes.
void PrintRow(const std::string& check, bool passed, const std::string& expected,
              const std::string& seen);
void PrintSkip(const std::string& check, const std::string& reason);
// A line above that table, for information.
void PrintFact(const std::string& fact);

}  // namespace gaccd
