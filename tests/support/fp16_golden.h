// tests/golden/fp16.txt: what PyTorch and its GradScaler find in every update of fp16.txtpb.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace gaccd::tests {

struct Fp16Step {
  double epoch = 0, step = 0, samples = 0, samples_total = 0, lr = 0;
  double loss = 0, grad_norm = 0;  // grad_norm: 0 where it is skipped
  double loss_scale = 0, skipped = 0, growth_tracker = 0;
};

inline std::vector<Fp16Step> ReadFp16Steps(const std::string& path) {
  std::ifstream file(path);
  std::vector<Fp16Step> steps;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string key;
    Fp16Step step;
    if (in >> key >> step.epoch >> step.step >> step.samples >> step.samples_total >> step.lr >>
            step.loss >> step.grad_norm >> step.loss_scale >> step.skipped >> step.growth_tracker &&
        key == "step") {
      steps.push_back(step);
    }
  }
  return steps;
}

}  // namespace gaccd::tests
