#include "daemon/train/consistency.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/hash.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/optim/measure.h"

namespace gaccd {

Result<std::string> ReplicaCheck::Compare(Engine& engine, std::int64_t step, bool* differ) const {
  if (!Due(step)) return std::string();
  GACCD_ASSIGN_OR_RETURN(const std::uint64_t digest, engine.Digest());
  std::string text = Hex(digest);
  Status same = CheckSameOnAllRanks(*comm_, "the digest of the parameters", text);
  if (!same.ok() && same.kind() == ErrorKind::kConfig) {
    *differ = true;
    same = {ErrorKind::kInternal, same.message()};
  }
  GACCD_RETURN_IF_ERROR(std::move(same).WithContext(StrCat("after update ", step)));
  return text;
}

namespace {

constexpr std::int64_t kSamplesCompared = 16;

// Hash of the same positions in all copies, whatever their content.
std::uint64_t HashContent(const Dataset& data) {
  const SampleSpec& spec = data.spec();
  const std::int64_t samples = std::min(kSamplesCompared, data.size());
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < samples; ++i) {
    places.push_back(samples == 1 ? 0 : i * (data.size() - 1) / (samples - 1));
  }
  BatchMemory batch(spec, samples);
  data.Gather(places, batch.view());
  std::vector<float> words;  // bits of all tensors, concatenated
  for (std::size_t i = 0; i < spec.tensors.size(); ++i) {
    const std::span<const std::byte> bytes = batch.bytes(i);
    const std::size_t first = words.size();
    words.resize(first + (bytes.size() + sizeof(float) - 1) / sizeof(float));
    std::memcpy(words.data() + first, bytes.data(), bytes.size());
  }
  return ComputeDigest(words);
}

// Fields that may be truncated are last in the texts.
std::string DescribeContent(const Dataset& data) {
  return StrCat(data.size(), " samples, content ", Hex(HashContent(data)), ", of ",
                Describe(data.spec()));
}

std::string DescribeContent(std::span<const BadRecord> bad) {
  constexpr std::size_t kShown = 8;
  std::uint64_t sum = 0;
  std::string text;
  for (std::size_t i = 0; i < bad.size(); ++i) {
    sum = sum * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(bad[i].sample) + 1;
    if (i < kShown) text += StrCat(i == 0 ? ": " : " ", bad[i].sample);
  }
  if (bad.size() > kShown) text += " ...";
  return StrCat(bad.size(), " records, sum ", Hex(sum), text);
}

Status Check(Communicator& comm, std::string_view what, const std::string& text) {
  return CheckSameOnAllRanks(comm, what, text.substr(0, kDigestBytes));
}

}  // namespace

DataContent HashContent(const Dataset& train, const Dataset* eval) {
  return {.train = HashContent(train), .eval = eval == nullptr ? 0 : HashContent(*eval)};
}

std::string ChangedDataText(const DataContent& saved, const DataContent& now) {
  std::string changed;
  const auto compare = [&](std::string_view name, std::uint64_t was, std::uint64_t is) {
    if (was == 0 || is == 0 || was == is) return;
    changed += StrCat(changed.empty() ? "" : " and the ", name, " (content ", Hex(was), " -> ",
                      Hex(is), ")");
  };
  compare("training data", saved.train, now.train);
  compare("evaluation data", saved.eval, now.eval);
  if (changed.empty()) return {};
  return StrCat("the samples are not those of the checkpoint: the ", changed,
                " changed; the run continues with the new ones");
}

Status CheckSameData(Communicator& comm, const Dataset& train, const Dataset* eval) {
  constexpr std::string_view kRecords = "damaged records of the ";
  GACCD_RETURN_IF_ERROR(
      Check(comm, StrCat(kRecords, "training data"), DescribeContent(train.bad_records())));
  if (eval != nullptr) {
    GACCD_RETURN_IF_ERROR(
        Check(comm, StrCat(kRecords, "evaluation data"), DescribeContent(eval->bad_records())));
  }
  const std::string content = DescribeContent(train);
  const std::string of_eval = eval == nullptr ? std::string() : DescribeContent(*eval);
  Status read = train.ReadError();
  if (read.ok() && eval != nullptr) read = eval->ReadError();
  GACCD_RETURN_IF_ERROR(AgreeOn(comm, read).status);
  GACCD_RETURN_IF_ERROR(Check(comm, "training data", content));
  return eval == nullptr ? Status::Ok() : Check(comm, "evaluation data", of_eval);
}

Status CheckUnchangedData(Communicator& comm, const Dataset& train, const Dataset* eval) {
  Status mine = train.CheckUnchanged();
  if (mine.ok() && eval != nullptr) mine = eval->CheckUnchanged();
  return AgreeOn(comm, mine).status;
}

}  // namespace gaccd
