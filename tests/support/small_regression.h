// The network and the data of the small trainings in the tests; each adds its batch and optimiser.
#pragma once

#include "daemon/config/job.h"

namespace gaccd::tests {

inline Job SmallRegression() {
  Job job;
  job.name = "small";
  job.model = {.layer = {{"fc1", LinearSpec{10, 16, true}},
                         {"relu", ReluSpec{}},
                         {"fc2", LinearSpec{16, 2, true}}},
               .loss = MeanSquaredErrorSpec{}};
  job.data.train = SyntheticSpec{.samples = 230, .features = 10, .outputs = 2, .seed = 3};
  job.data.eval = SyntheticSpec{.samples = 41, .features = 10, .outputs = 2, .seed = 3};
  return job;
}

}  // namespace gaccd::tests
