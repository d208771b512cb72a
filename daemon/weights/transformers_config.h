// config.json of Hugging Face transformers, for architectures whose weights have its names and
// shapes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

// The config.json of GPT2LMHeadModel, BertForSequenceClassification or BertForMaskedLM.
// class_names: by label; may have fewer than the classes. kConfig for other architectures.
Result<std::string> TransformersConfig(const ModelSpec& model,
                                       std::span<const std::string> class_names = {});

// kData with all differences if `config` describes another model than the gpt or bert of the job in
// properties that the shapes of weights do not determine (heads, epsilon, activation, kind of
// positions), or in sizes of tables, unless these are newly initialised (fresh: --new-weights).
// Missing keys have the defaults of transformers. Other architectures are not compared.
Status CheckTransformersConfig(std::string_view config, const ModelSpec& model,
                               std::span<const std::string> fresh = {});

}  // namespace gaccd
