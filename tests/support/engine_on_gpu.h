// One rank with the engine on a GPU, over the stand-ins.
#pragma once

#include <gtest/gtest.h>

#include "tests/standin/cublaslt_standin.h"
#include "tests/standin/standin.h"
#include "tests/support/engine_runs.h"

namespace gaccd::tests {

inline EngineChoice Cuda(int gpu = 0) {
  return {.device = Device::kCuda, .gpu = gpu, .cublaslt = &standin::StandInCublasLt()};
}

inline Result<EngineRun> RunOn(const EngineChoice& choice, const EngineCase& test,
                               const EngineRunOptions& options = {}) {
  const auto comm = MakeSingle();
  return RunEngine(*comm, test, choice, options);
}

class CudaEngineTest : public ::testing::Test {
 protected:
  CudaEngineTest() { standin::Reset(); }
  ~CudaEngineTest() override {
    EXPECT_EQ(standin::LiveBytes(0), 0);
    EXPECT_EQ(standin::LiveBytes(-1), 0);
  }
};

}  // namespace gaccd::tests
