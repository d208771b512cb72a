// Two job texts, and how tests read and change them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "daemon/config/job_text.h"

namespace gaccd::tests {

inline constexpr std::string_view kMinimal = R"(name: "line"
model { layer { name: "fc" linear { in: 10 out: 1 } } loss { mean_squared_error {} } }
data { train { synthetic { samples: 4096 } } }
optimizer { lr: 0.1 sgd {} }
)";

inline constexpr std::string_view kFull = R"(name: "mnist"
model {
  layer { name: "flatten" flatten {} }
  layer { name: "fc1" linear { in: 784 out: 512 bias: false } }
  layer { name: "relu" relu {} }
  layer { name: "fc2" linear { in: 512 out: 10 } }
  loss { softmax_cross_entropy {} }
}
data {
  train { idx { images: "train-images.gz" labels: "train-labels.gz" } }
  eval { npy { features: "x.npy" targets: "y.npy" classes: 10 } }
  normalize { scale: 0.00392156862745098 mean: 0.5 std: 0.25 }
  shuffle: false
}
batch { target: 1000 micro: 32 rounding: NEAREST last_cycle: DROP lr_rule: SQRT reference: 256 }
optimizer { lr: 0.001 adamw { beta1: 0.8 beta2: 0.95 epsilon: 1e-6 weight_decay: 0.1 } }
schedule { warmup_updates: 5 step { every_updates: 100 gamma: 0.5 } }
clip_norm: 1.5
epochs: 3
max_updates: 400
seed: 18446744073709551615
log_every: 7
device: CUDA
precision: BF16
tf32: true
deterministic: true
)";

inline Job ParseOk(std::string_view text) {
  Result<Job> job = ParseJobText(text, "job.txtpb");
  EXPECT_TRUE(job.ok()) << job.status().message();
  return job.ok() ? *job : Job{};
}

// The message of the kConfig error that the text must give.
inline std::string Error(std::string_view text) {
  const Result<Job> job = ParseJobText(text, "job.txtpb");
  if (job.ok()) return "no error";
  EXPECT_EQ(job.status().kind(), ErrorKind::kConfig);
  return job.status().message();
}

// `text` with its one `from` replaced.
inline std::string With(std::string_view text, std::string_view from, std::string_view to) {
  std::string changed(text);
  const std::size_t at = changed.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return changed.replace(at, from.size(), to);
}

}  // namespace gaccd::tests
