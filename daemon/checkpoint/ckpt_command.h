// gaccd ckpt ls|verify|prune|export: checkpoints looked at, checked, thinned out and turned into
// weights, without a run and on one process.
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
  std::string out;                 // of export: a safetensors file, or a folder
  KeepPolicy keep;                 // of prune
  bool json = false;               // of ls and verify: a line of JSON a checkpoint, no table
  Modes out_modes;                 // of `out`, before the umask
  bool transformers = false;       // of export: the folder of transformers_folder.h
  bool without_tokenizer = false;  // of this folder
  bool best = false;               // of export and verify: OnlyBest()
  bool raw_weights = false;        // of export: ReadSavedWeights()
};

// "ls" and a path: the arguments after `gaccd ckpt`. kUsage for anything else.
[[nodiscard]] Result<CkptRequest> MakeCkptRequest(std::span<const std::string> words,
                                                  const std::string& out, const KeepPolicy& keep);

// What to print, and then whether all was well: kData when verify or export finds damage.
struct CkptOutput {
  std::string text;
  Status verdict;
};

//   ls      a line a generation, newest first: name, ranks, size, time, whether its files are there
//           in their sizes, and which one is that of the best evaluation
//   verify  reads every byte of them
//   prune   removes by `keep`, but not the best one; kConfig, naming the owner, while a run lives
//           there
//   export  the parameters, or their averages, of the newest whole generation, naming the damaged
//           ones passed over; or of the generation given
// Errors: kUsage for a path or an `out` that is missing; kIo, kData.
[[nodiscard]] Result<CkptOutput> RunCkptCommand(const CkptRequest& request);

}  // namespace gaccd
