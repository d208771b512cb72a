// The IDX format of MNIST, plain or compressed by gzip (detected by content, not by name).
//
//   bytes 0..1  zero
//   byte  2     element type: 0x08 = u8, the only supported one
//   byte  3     number of dimensions, 1..8
//   then        each dimension, u32 big endian
//   then        the elements, row-major; the file ends with them
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "collectives/base/result.h"
#include "daemon/data/formats/array.h"
#include "daemon/data/node_share.h"

namespace gaccd {

// The array in `file`: of a plain file a view without owner. A compressed file is decompressed into
// its own memory, or with a leader's `share` into memory shared by the node; at most as much as its
// header says, and only if a file of this size can contain so much. Errors: kData with `name`,
// expected and found value; NoMemory().
Result<Array> DecodeIdx(const std::string& name, std::span<const std::byte> file,
                        NodeShare* share = nullptr);

// The same for a file, which remains mapped while the array is a view of it. Uses what the leader
// of the node has decompressed. Errors: also kIo.
Result<Array> LoadIdx(const std::string& path, NodeShare* share = nullptr);

}  // namespace gaccd
