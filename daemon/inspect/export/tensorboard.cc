#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdint>
#include <optional>
#include <span>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/crc32c.h"
#include "daemon/inspect/export/exports.h"
#include "daemon/inspect/export/scalars.h"
#include "daemon/inspect/watch/event_stream.h"
#include "proto/tensorboard.pb.h"

namespace gaccd {
namespace {

static_assert(std::endian::native == std::endian::little, "TFRecord is little-endian");

template <typename T>
std::string Bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// The masked CRC of TFRecord, for data that itself contains CRCs.
std::string MaskedCrc(std::string_view data) {
  constexpr std::uint32_t kDelta = 0xa282ead8U;
  const std::uint32_t crc = Crc32c(std::as_bytes(std::span(data)));
  return Bytes(((crc >> 15) | (crc << 17)) + kDelta);
}

// Length, its CRC, the message, its CRC.
std::string Record(const proto::tensorboard::Event& event) {
  const std::string data = event.SerializeAsString();
  const std::string length = Bytes(std::uint64_t{data.size()});
  return length + MaskedCrc(length) + data + MaskedCrc(data);
}

// `text` as a part of a file name.
std::string NamePart(std::string_view text) {
  std::string part(text);
  std::ranges::replace_if(
      part, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-'; }, '_');
  return part.empty() ? "_" : part;
}

std::string FileName(const Event& first) {
  const auto start = static_cast<std::int64_t>(SecondsSinceEpoch(first.at));
  return StrCat(Format("events.out.tfevents.%010ld.", start), NamePart(first.Text("host")),
                ".gaccd");
}

// Creates the file of one attempt.
Result<TextSink> Begin(const std::string& folder, const Event& first) {
  const std::string attempt = StrCat(folder, "/", first.attempt);
  GACCD_RETURN_IF_ERROR(MakeFolders(attempt));
  GACCD_ASSIGN_OR_RETURN(TextSink file, TextSink::Open(StrCat(attempt, "/", FileName(first))));
  proto::tensorboard::Event version;
  version.set_wall_time(SecondsSinceEpoch(first.at));
  version.set_file_version("brain.Event:2");
  GACCD_RETURN_IF_ERROR(file.Write(Record(version)));
  return file;
}

}  // namespace

Status ExportTensorboard(const std::string& run_dir, const std::string& attempt,
                         const std::string& folder, std::vector<std::string>* notes) {
  GACCD_ASSIGN_OR_RETURN(EventStream stream, EventStream::Open(run_dir, attempt));
  std::optional<TextSink> file;
  std::string now;  // attempt of `file`
  Event event;
  while (stream.Next(&event)) {
    if (event.attempt != now) {
      if (file) GACCD_RETURN_IF_ERROR(file->Close());
      now = event.attempt;
      GACCD_ASSIGN_OR_RETURN(TextSink begun, Begin(folder, event));
      file.emplace(std::move(begun));
    }
    proto::tensorboard::Event message;
    ForEachScalar(event, [&](const Scalar& scalar) {
      auto* value = message.mutable_summary()->add_value();
      value->set_tag(scalar.tag);
      value->set_simple_value(static_cast<float>(scalar.value));
    });
    if (!message.has_summary()) continue;
    message.set_wall_time(SecondsSinceEpoch(event.at));
    message.set_step(event.Whole("step").value_or(0));
    GACCD_RETURN_IF_ERROR(file->Write(Record(message)));
  }
  *notes = stream.notes();
  return file ? file->Close() : Status();
}

}  // namespace gaccd
