#include <zlib.h>

#include "daemon/data/formats/array.h"
#include "daemon/data/formats/gzip.h"
#include "tests/fuzz/fuzz_array.h"
#include "tests/fuzz/fuzz_targets.h"

namespace {

// Appends `plain` to `out` as one gzip member.
void Compress(std::span<const std::byte> plain, std::vector<std::byte>& out) {
  z_stream stream{};
  gaccd::FuzzCheck(deflateInit2(&stream, 1, Z_DEFLATED, 9 + 16, 1, Z_DEFAULT_STRATEGY) == Z_OK,
                   "zlib is ready");
  const std::size_t start = out.size();
  out.resize(start + deflateBound(&stream, plain.size()) + 64);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data() + start);
  stream.avail_out = static_cast<uInt>(out.size() - start);
  gaccd::FuzzCheck(deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib compresses");
  out.resize(start + stream.total_out);
  deflateEnd(&stream);
}

}  // namespace

// The input as it is, and compressed, in two members: both must be accepted or refused, with the
// same elements. A fuzzer cannot guess checksums, so the second reading is what tests the
// compressed path.
int gaccd::FuzzIdx(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  const auto plain = gaccd::DecodeIdx("input", input);
  if (plain.ok()) gaccd::UseArray(*plain);
  if (gaccd::IsGzip(input)) return 0;
  std::vector<std::byte> file;
  Compress(input.first(size / 2), file);
  Compress(input.subspan(size / 2), file);
  const auto compressed = gaccd::DecodeIdx("input.gz", file);
  gaccd::FuzzCheck(plain.ok() == compressed.ok(), "plain and compressed are judged alike");
  if (plain.ok()) {
    gaccd::FuzzCheck(plain->shape == compressed->shape, "plain and compressed have one shape");
    gaccd::FuzzCheck(std::ranges::equal(plain->data, compressed->data),
                     "plain and compressed have the same elements");
  }
  return 0;
}
