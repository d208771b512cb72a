// gaccd ckpt ls|verify|prune|export: lists, checks and prunes checkpoints, and exports weights, in
// one process without a run.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "daemon/checkpoint/generations.h"

namespace gaccd {

enum class CkptAction : std::uint8_t { kLs, kVerify, kPrune, kExport };

struct CkptRequest {
  CkptAction action = CkptAction::kLs;
  // A run folder, its ckpt folder, or (not for prune) one generation's folder.
  std::string path;
  std::string out;  // export: a safetensors file, or a folder
  KeepPolicy keep;  // prune
  // ls and verify: one JSON object per checkpoint and line instead of a table
  bool json = false;
  Modes out_modes;                 // modes of `out`, before the umask
  bool transformers = false;       // export: the folder format of transformers_folder.h
  bool without_tokenizer = false;  // for the transformers folder
  bool best = false;               // export and verify: OnlyBest()
  bool raw_weights = false;        // export: ReadSavedWeights()
};

// "ls" and a path: the arguments after `gaccd ckpt`. kUsage for anything else.
[[nodiscard]] Result<CkptRequest> MakeCkptRequest(std::span<const std::string> words,
                                                  const std::string& out, const KeepPolicy& keep);

// The text to print, and the final status: kData if verify or export finds damage.
struct CkptOutput {
  std::string text;
  Status verdict;
};

//   ls      one line per generation, newest first: name, ranks, size, time, whether its files exist
//           with their sizes, and which one has the best evaluation
//   verify  reads every byte of them
//   prune   removes by `keep`, but never the best one; kConfig, with the owner, while a run is
//           active there
//   export  the parameters, or their averages, of the newest intact generation, with the skipped
//           damaged ones; or of the given generation
// Errors: kUsage for a missing path or `out`; kIo, kData.
[[nodiscard]] Result<CkptOutput> RunCkptCommand(const CkptRequest& request);

}  // namespace gaccd
