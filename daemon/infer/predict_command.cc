#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/dtype.h"
#include "collectives/base/files.h"
#include "collectives/base/json.h"
#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "collectives/base/ticks.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/config/job_text.h"
#include "daemon/data/class_names.h"
#include "daemon/data/index_source.h"
#include "daemon/data/prefetcher.h"
#include "daemon/engine/engine_ring.h"
#include "daemon/infer/commands.h"
#include "daemon/infer/row_file.h"
#include "daemon/infer/trained_model.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/shape.h"
#include "daemon/train/consistency.h"
#include "daemon/train/storage_limits.h"

namespace gaccd {

namespace {

template <typename T>
void AppendNumber(const std::byte* at, std::string* text) {
  T value;
  std::memcpy(&value, at, sizeof value);
  *text += NumberText(value);
}

// Appends the values of all dimensions, and moves `at` after them.
void AppendValues(std::span<const std::int64_t> shape, DType dtype, const std::byte*& at,
                  std::string* text) {
  if (shape.empty()) {
    if (dtype == DType::kF32) {
      AppendNumber<float>(at, text);
    } else {
      AppendNumber<std::int32_t>(at, text);
    }
    at += SizeOf(dtype);
    return;
  }
  *text += '[';
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    if (i > 0) *text += ',';
    AppendValues(shape.subspan(1), dtype, at, text);
  }
  *text += ']';
}

// {"sample":3,"logits":[0.5,-1.25]}: `key` and the values of one sample with this shape: a number,
// a list, or a list of lists. Numbers are the shortest text that reads back the same. REQUIRES:
// finite values of `dtype` (kF32, kI32), as many as the shape has.
std::string PredictionLine(std::int64_t sample, std::string_view key, const Shape& shape,
                           DType dtype, std::span<const std::byte> values) {
  std::string text = StrCat("{\"sample\":", sample, ",\"", key, "\":");
  const std::byte* at = values.data();
  AppendValues(shape, dtype, at, &text);
  return text + "}\n";
}

// {"sample":3,"class":1,"name":"dog"}: without a name if names[number] is not known.
std::string ClassLine(std::int64_t sample, std::int32_t number,
                      std::span<const std::string> names) {
  const auto at = static_cast<std::size_t>(number);
  const std::string name =
      at < names.size() ? StrCat(",\"name\":", Json(names[at]).Dump()) : std::string();
  return StrCat("{\"sample\":", sample, ",\"class\":", number, name, "}\n");
}

constexpr std::string_view kArray = ".npy";
constexpr std::string_view kLines = ".jsonl";

bool IsJsonLines(const Flags& flags) { return flags.out->ends_with(kLines); }

Status CheckWhat(const Flags& flags, const ModelSpec& model) {
  if (flags.what != Predicted::kClasses) return Status::Ok();
  if (GetLossKind(model.loss) == LossKind::kSoftmaxCrossEntropy) return Status::Ok();
  return {ErrorKind::kConfig, "--what=classes needs a job with the loss softmax_cross_entropy"};
}

// --out may only replace an earlier prediction.
Status CheckOut(const Flags& flags) {
  if (!flags.out) return {ErrorKind::kUsage, "predict needs --out=FILE"};
  const std::string& out = *flags.out;
  if (!out.ends_with(kArray) && !IsJsonLines(flags)) {
    return {ErrorKind::kUsage, StrCat("--out: expected a name that ends with ", kArray, " or ",
                                      kLines, ", found '", out, "'")};
  }
  GACCD_RETURN_IF_ERROR(CheckOutputFile(out));
  return IsJsonLines(flags) ? CheckReplaces(out, "{", "JSON") : CheckReplaces(out, "\x93", "NPY");
}

// The row of the file for one sample.
struct RowFormat {
  std::string_view key;
  Shape shape;  // of a sample
  DType dtype = DType::kF32;
};

RowFormat MakeRowFormat(Predicted what, LossKind loss, const Shape& answer) {
  switch (what) {
    case Predicted::kLogits:
      if (loss == LossKind::kOutput) {  // two numbers: sum and count
        return {"loss", answer == Shape{1} ? Shape{} : answer, DType::kF32};
      }
      return {loss == LossKind::kMeanSquaredError ? "prediction" : "logits", answer, DType::kF32};
    case Predicted::kEmbeddings:
      return {"embedding", answer, DType::kF32};
    case Predicted::kClasses:
      return {"class", {answer.begin(), answer.end() - 1}, DType::kI32};
  }
  return {};
}

// The class with the largest logit of each row; of equal ones the lowest class.
std::vector<std::int32_t> PredictClasses(std::span<const float> logits, std::int64_t classes) {
  std::vector<std::int32_t> best;
  for (auto row = logits.begin(); row != logits.end(); row += classes) {
    best.push_back(static_cast<std::int32_t>(std::max_element(row, row + classes) - row));
  }
  return best;
}

Status CheckFinite(std::span<const float> answers, std::int64_t first, std::int64_t samples) {
  const std::size_t bad = FirstNotFinite(answers);
  if (bad == answers.size()) return Status::Ok();
  const std::int64_t each = std::ssize(answers) / samples;
  return {ErrorKind::kData, StrCat("sample ", first + static_cast<std::int64_t>(bad) / each,
                                   ": the model's answer is not finite: ", answers[bad])};
}

// Predicts and writes the rows of this rank, if any. For WorkTogether().
Status WriteShare(const Flags& flags, const Session& session, TrainedModel& trained, RowFile& file,
                  TimedTicks ticks) {
  const Communicator& comm = session.comm;
  const EvalShard shard = trained.MakeShard(comm);
  EngineRing ring;
  GACCD_ASSIGN_OR_RETURN(
      const auto batches,
      Prefetcher::Start(
          *trained.data, std::make_unique<EvalIndices>(shard, trained.job.batch.micro),
          {.memory = ring.MemoryFor(*trained.engine), .cuts = trained.model->sample().cuts}));
  std::int64_t first = shard.first;
  while (const BatchView* batch = batches->Next()) {
    GACCD_RETURN_IF_ERROR(batches->status());
    GACCD_ASSIGN_OR_RETURN(const Evaluation evaluation, trained.engine->Evaluate(*batch));
    const std::span<const float> answers(evaluation.prediction);
    GACCD_RETURN_IF_ERROR(CheckFinite(answers, first, batch->samples));
    if (flags.what == Predicted::kClasses) {
      const std::vector<std::int32_t> classes =
          PredictClasses(answers, trained.model->prediction_shape().back());
      GACCD_RETURN_IF_ERROR(file.Write(first, std::as_bytes(std::span(classes))));
    } else {
      GACCD_RETURN_IF_ERROR(file.Write(first, std::as_bytes(answers)));
    }
    first += batch->samples;
    GACCD_RETURN_IF_ERROR(ticks.Done());
  }
  return file.Finish();
}

// names: of the classes, or empty.
Status WriteLines(const std::string& out, unsigned mode, const RowFormat& rows, const RowFile& file,
                  std::span<const std::string> names) {
  GACCD_ASSIGN_OR_RETURN(const std::string target, OutputTarget(out));
  GACCD_ASSIGN_OR_RETURN(DurableFile lines, DurableFile::Create(target, mode));
  const auto row_bytes = static_cast<std::size_t>(Elements(rows.shape)) * SizeOf(rows.dtype);
  GACCD_RETURN_IF_ERROR(
      file.ReadBack([&](std::int64_t first, std::span<const std::byte> bytes) -> Status {
        std::string text;
        for (; !bytes.empty(); bytes = bytes.subspan(row_bytes)) {
          const auto row = bytes.first(row_bytes);
          if (names.empty() || !rows.shape.empty()) {
            text += PredictionLine(first++, rows.key, rows.shape, rows.dtype, row);
            continue;
          }
          std::int32_t number = 0;
          std::memcpy(&number, row.data(), sizeof number);
          text += ClassLine(first++, number, names);
        }
        return lines.Write(std::as_bytes(std::span(text)));
      }));
  return lines.Commit();
}

Status WriteAnswers(const Flags& flags, const TrainedModel& trained, unsigned mode,
                    const RowFormat& rows, RowFile& file) {
  ClassNames names;
  if (flags.what == Predicted::kClasses) {
    GACCD_ASSIGN_OR_RETURN(names, ReadClassNames(trained.job));
    const std::vector<std::string>& saved = trained.class_names;
    const bool fits = std::ssize(saved) == trained.model->prediction_shape().back();
    if (names.names.empty() && fits) names.names = saved;
  }
  return IsJsonLines(flags) ? WriteLines(*flags.out, mode, rows, file, names.names)
                            : file.Publish();
}

RankStatus RunPrediction(const Flags& flags, Session& session, TrainedModel& trained) {
  Communicator& comm = session.comm;
  Agreement checked = AgreeOn(comm, comm.rank() == 0 ? CheckOut(flags) : Status::Ok());
  if (!checked.status.ok()) return checked;
  const InferenceOutput answer = flags.what == Predicted::kEmbeddings
                                     ? InferenceOutput::kEmbeddings
                                     : InferenceOutput::kPrediction;
  const MakeModel make = [&](const ModelSpec& model, const SampleSpec& sample) -> Result<Model> {
    GACCD_RETURN_IF_ERROR(CheckWhat(flags, model));
    return Model::MakeForInference(model, sample, answer);
  };
  if (RankStatus opened = OpenTrainedModel(flags, session, make, &trained); !opened.status.ok()) {
    return opened;
  }
  checked = AgreeOn(comm, comm.rank() == 0 && ReadsFile(trained.job, *flags.out)
                              ? Status(ErrorKind::kUsage, StrCat("--out: '", *flags.out,
                                                                 "' is a file of the job's data"))
                              : Status::Ok());
  if (!checked.status.ok()) return checked;
  const RowFormat rows = MakeRowFormat(flags.what, GetLossKind(trained.job.model.loss),
                                       trained.model->prediction_shape());
  const unsigned mode = flags.group_access ? kGroupMayRead.file : kFileMode;
  Shape shape = rows.shape;
  shape.insert(shape.begin(), trained.data->size());
  RowFile file;
  Agreement done =
      file.Open(comm, {.path = *flags.out, .shape = shape, .dtype = rows.dtype, .mode = mode});
  if (!done.status.ok()) return done;
  done = WorkTogether(comm, [&](const TickFunction& tick) {
    return WriteShare(flags, session, trained, file, TimedTicks(tick));
  });
  if (!done.status.ok()) return done;
  if (Status same = CheckUnchangedData(comm, *trained.data, nullptr); !same.ok()) return {same};
  done = WorkTogether(comm, [&](const TickFunction& tick) {
    if (comm.rank() != 0) return Status::Ok();
    // However slow the disk is: the others would end without this rank only after their bound.
    constexpr std::chrono::hours kNoLimit{24 * 365};
    return WriteWithin(kNoLimit, *flags.out, tick,
                       [&] { return WriteAnswers(flags, trained, mode, rows, file); })
        .WithContext("--out");
  });
  if (!done.status.ok() || comm.rank() != 0) return done;
  return {PrintOut(StrCat(session.device.text, "\n", trained.Report(), "wrote ", *flags.out, ": ",
                          rows.key, " ", ToString(shape), "\n")),
          false};
}

}  // namespace

VerbOutcome RunPredict(const Flags& flags, const ErrorPrinter& print) {
  return RunOnRanks(flags, print, [&](Session& session, TrainedModel& trained) {
    return RunPrediction(flags, session, trained);
  });
}

}  // namespace gaccd
