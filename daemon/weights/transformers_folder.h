// A folder for from_pretrained() of Hugging Face transformers: config.json, model.safetensors and,
// optionally, tokenizer.json with tokenizer_config.json.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/weights/safetensors.h"

namespace gaccd {

struct TransformersOptions {
  Modes modes;  // before the umask
  bool without_tokenizer = false;
};

// Creates `folder`, or uses an empty one. The tokenizer is the one next to the training tokens, so
// texts become the same tokens as in tools/prepare, truncated at the same length. Class names are
// those of the job. Writes config.json last. Returns text about the tokenizer. Errors: kConfig if
// transformers does not have the architecture or the job has no tokens; kIo without a tokenizer,
// kData if it is not that of the data: then nothing is written; kIo if the folder is not empty.
Result<std::string> WriteTransformersFolder(const std::string& folder, const Job& job,
                                            std::span<const NamedTensor> tensors,
                                            const TransformersOptions& options);

// config.json of Hugging Face transformers, for architectures whose weights have its names and
// shapes.

// The config.json of GPT2LMHeadModel, BertForSequenceClassification or BertForMaskedLM.
// class_names: by label; may have fewer than the classes. kConfig for other architectures.
Result<std::string> TransformersConfig(const ModelSpec& model,
                                       std::span<const std::string> class_names = {});

// kData with all differences if `config` describes another model than the gpt or bert of the job in
// properties that the shapes of weights do not determine (heads, epsilon, activation, kind of
// positions), or in sizes of tables, unless these are newly initialised (--new-weights).
// Missing keys have the defaults of transformers. Other architectures are not compared.
Status CheckTransformersConfig(std::string_view config, const ModelSpec& model,
                               std::span<const std::string> new_weights = {});

}  // namespace gaccd
