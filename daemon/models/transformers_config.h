// config.json of Hugging Face's transformers, for the architectures that have the names and shapes
// of its weights.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

// Of GPT2LMHeadModel or BertForSequenceClassification. kConfig for other architectures.
Result<std::string> TransformersConfig(const ModelSpec& model);

}  // namespace gaccd
