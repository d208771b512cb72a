// Environments as real SLURM 22.05 sets them, for tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "slurm/environment.h"

namespace gaccd {

using Variables = std::map<std::string, std::string, std::less<>>;

// `variables` with one more, or one other. (g++ 12 warns falsely about map[name] = "literal".)
inline Variables With(Variables variables, std::string_view name, std::string value) {
  variables.insert_or_assign(std::string(name), std::move(value));
  return variables;
}

inline Environment LookupIn(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

inline SlurmEnvironment MustRead(const Variables& variables) {
  auto env = SlurmEnvironment::Read(LookupIn(variables));
  EXPECT_TRUE(env.ok()) << env.status().message();
  return env.ok() ? *env : SlurmEnvironment{};
}

// An sbatch script on 4 nodes with 2 tasks each.
inline Variables BatchScript() {
  return {{"SLURM_JOB_ID", "3"},
          {"SLURM_JOB_NAME", "fashion"},
          {"SLURM_JOB_NUM_NODES", "4"},
          {"SLURM_NNODES", "4"},
          {"SLURM_JOB_NODELIST", "n[1-4]"},
          {"SLURM_JOB_PARTITION", "main"},
          {"SLURM_CLUSTER_NAME", "gaccd"},
          {"SLURM_NTASKS", "8"},
          {"SLURM_TASKS_PER_NODE", "2(x4)"},
          {"SLURM_PROCID", "0"}};
}

// Rank 1 of a step of that job on 3 of its nodes with 1 task each.
inline Variables Step() {
  Variables step = {{"SLURM_STEP_ID", "0"},
                    {"SLURM_PROCID", "1"},
                    {"SLURM_STEP_NUM_TASKS", "3"},
                    {"SLURM_STEP_NUM_NODES", "3"},
                    {"SLURM_STEP_NODELIST", "n[1-3]"},
                    {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"}};
  step.merge(BatchScript());
  return step;
}

}  // namespace gaccd
