// A folder that Hugging Face's transformers opens (from_pretrained): config.json, model.safetensors
// and, where it is known, tokenizer.json with tokenizer_config.json.
#pragma once

#include <span>
#include <string>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/model/safetensors.h"

namespace gaccd {

// `folder` is made, or empty: kIo otherwise. The tokenizer is the one that tools/prepare left
// beside the tokens that the job trains on; a relative path starts at the current folder.
// config.json comes last. Gives, for people, which tokenizer was taken, or that there is none.
// kConfig: transformers has no such architecture.
Result<std::string> WriteTransformersFolder(const std::string& folder, const Job& job,
                                            std::span<const NamedTensor> tensors,
                                            const Modes& modes);

}  // namespace gaccd
