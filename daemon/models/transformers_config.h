// config.json of Hugging Face's transformers, for the architectures that have the names and shapes
// of its weights.
#pragma once

#include <span>
#include <string>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

// Of GPT2LMHeadModel, BertForSequenceClassification or BertForMaskedLM. class_names: by their
// numbers, as far as they are known. kConfig for other architectures.
Result<std::string> TransformersConfig(const ModelSpec& model,
                                       std::span<const std::string> class_names = {});

}  // namespace gaccd
