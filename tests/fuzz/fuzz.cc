// libFuzzer's entry to all targets:  fuzz --target=NAME [flags of libFuzzer] [folder or file...]
#include <google/protobuf/stubs/logging.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "tests/fuzz/fuzz_targets.h"

namespace gaccd {
namespace {

constexpr std::pair<std::string_view, FuzzTarget*> kTargets[] = {
    {"checkpoint_manifest", FuzzCheckpointManifest},
    {"checkpoint_shard", FuzzCheckpointShard},
    {"csv", FuzzCsv},
    {"data_json", FuzzDataJson},
    {"event", FuzzEvent},
    {"failure_record", FuzzFailureRecord},
    {"graph", FuzzGraph},
    {"heartbeat_frame", FuzzHeartbeatFrame},
    {"idx", FuzzIdx},
    {"image", FuzzImage},
    {"job_text", FuzzJobText},
    {"npy", FuzzNpy},
    {"owner", FuzzOwner},
    {"run_folder", FuzzRunFolder},
    {"safetensors", FuzzSafetensors},
    {"set", FuzzSet},
    {"site", FuzzSite},
    {"slurm", FuzzSlurm},
    {"tar", FuzzTar},
    {"tokenizer", FuzzTokenizer},
    {"verdict", FuzzVerdict},
#if defined(GACCD_CUDA)
    {"matmul_choices", FuzzMatmulChoices},
#endif
};
FuzzTarget* chosen = nullptr;

}  // namespace
}  // namespace gaccd

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  // As in main.cc: a line for every string that is no UTF-8 would fill the disk.
  google::protobuf::SetLogHandler(nullptr);
  constexpr std::string_view kOption = "--target=";  // libFuzzer leaves out what begins with --
  for (int i = 1; i < *argc; ++i) {
    const std::string_view word = (*argv)[i];
    if (!word.starts_with(kOption)) continue;
    for (const auto& [name, target] : gaccd::kTargets) {
      if (word.substr(kOption.size()) == name) gaccd::chosen = target;
    }
  }
  if (gaccd::chosen != nullptr) return 0;
  std::fprintf(stderr, "usage: fuzz --target=NAME ..., NAME one of:\n");
  for (const auto& entry : gaccd::kTargets) std::fprintf(stderr, "  %s\n", entry.first.data());
  std::exit(64);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return gaccd::chosen(data, size);
}
