// A folder that Hugging Face's transformers opens (from_pretrained): config.json, model.safetensors
// and, unless it is not wanted, tokenizer.json with tokenizer_config.json.
#pragma once

#include <span>
#include <string>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/weights/safetensors.h"

namespace gaccd {

struct TransformersOptions {
  Modes modes;  // before the umask
  bool without_tokenizer = false;
};

// `folder` is made, or empty: kIo otherwise. The tokenizer is the one next to the tokens that the
// job trains on, and makes of a text the tokens that tools/prepare made of it, cut where they were
// cut. Classes have the names that the job has for them. config.json comes last. Gives, for people,
// which tokenizer was taken, or that there is none. kConfig: transformers has no such architecture.
// kIo where there is no tokenizer, kData where it is not that of the data: then nothing is written.
Result<std::string> WriteTransformersFolder(const std::string& folder, const Job& job,
                                            std::span<const NamedTensor> tensors,
                                            const TransformersOptions& options);

}  // namespace gaccd
