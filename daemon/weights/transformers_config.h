// config.json of Hugging Face's transformers, for the architectures that have the names and shapes
// of its weights.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

// Of GPT2LMHeadModel, BertForSequenceClassification or BertForMaskedLM. class_names: by their
// numbers, as far as they are known. kConfig for other architectures.
Result<std::string> TransformersConfig(const ModelSpec& model,
                                       std::span<const std::string> class_names = {});

// kData, naming each difference, when `config` describes another model than gpt or bert of the job:
// in what the shapes of the weights do not show (heads, epsilon, activation, kind of positions),
// and in the sizes of tables unless they are newly initialised (`fresh`: --new-weights). A key that
// is missing has the default of transformers. Models of other architectures are not compared.
Status CheckTransformersConfig(std::string_view config, const ModelSpec& model,
                               std::span<const std::string> fresh = {});

}  // namespace gaccd
