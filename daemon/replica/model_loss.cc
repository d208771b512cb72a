#include "daemon/replica/model_loss.h"

#include "collectives/base/strings.h"

namespace gaccd {

std::string_view TargetTensor(LossKind loss) {
  switch (loss) {
    case LossKind::kSoftmaxCrossEntropy:
      return kLabels;
    case LossKind::kMeanSquaredError:
      return "targets";
    case LossKind::kContrastive:
    case LossKind::kOutput:
      return "";
  }
  return "";
}

Status CheckLossFits(LossKind loss, const SampleSpec& sample) {
  if (TargetTensor(loss).empty()) return Status::Ok();
  const bool labels = loss == LossKind::kSoftmaxCrossEntropy;
  if (!labels && sample.Find(kWeights) != nullptr) {
    return {ErrorKind::kConfig, "mean_squared_error does not support weights"};
  }
  if (sample.Find(TargetTensor(loss)) != nullptr) return Status::Ok();
  return {ErrorKind::kConfig, StrCat(labels ? "softmax_cross_entropy needs class labels"
                                            : "mean_squared_error needs target vectors",
                                     ", found samples of ", Describe(sample))};
}

Status CheckPredictionFits(LossKind loss, const SampleSpec& sample, std::int64_t rows,
                           const Shape& row, std::string_view outputs) {
  const TensorSpec& target = *sample.Find(TargetTensor(loss));
  const bool labels = loss == LossKind::kSoftmaxCrossEntropy;
  const std::int64_t targets = labels ? target.elements() : 1;
  if (rows != targets) {
    return {ErrorKind::kConfig,
            StrCat("loss: a sample has ", targets, labels ? " labels" : " target",
                   ", but the model predicts ", rows, " rows for it")};
  }
  const std::int64_t wanted = labels ? sample.classes : target.elements();
  // A vocabulary may be padded to a round number.
  if (row == Shape{wanted} || (rows > 1 && row.size() == 1 && row[0] > wanted)) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("loss: the data has ", wanted,
                 !labels && wanted == 1                            ? " value per target"
                 : !labels                                         ? " values per target"
                 : rows > 1 && sample.classes == sample.vocabulary ? " tokens in its vocabulary"
                                                                   : " classes",
                 ", and the model gives ", ToString(row), " for a ", rows > 1 ? "token" : "sample",
                 ": expected [", wanted, "]; set ", outputs, " to ", wanted,
                 labels ? ", if the data is right" : "")};
}

Status CheckLossOutput(const Shape& output, DType dtype, std::int64_t samples) {
  if (output == Shape{samples, 2} && dtype != DType::kF32) {
    return {ErrorKind::kConfig,
            StrCat("loss: output with a count for each sample: counts are not exact in ",
                   Name(dtype), "; expected precision f32")};
  }
  if (output == Shape{samples, 1} || output == Shape{samples, 2}) return Status::Ok();
  return {
      ErrorKind::kConfig,
      StrCat("loss: output needs one number for each sample, its loss, or two, the sum of its "
             "losses and their count; the model gives ",
             ToString(output), " for ", Counted(samples, "sample"), ": expected [", samples,
             ", 1] or [", samples, ", 2]; take the mean over the other dimensions in forward()")};
}

Status CheckOneRowEach(const Shape& rows, std::int64_t samples) {
  if (rows[0] == samples) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("loss: contrastive needs one output row per sample, but the "
                                     "encoders produce ",
                                     rows[0] / samples)};
}

}  // namespace gaccd
