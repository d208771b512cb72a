// The IDX format of MNIST, plain or compressed by gzip (seen from the content, not the name).
//
//   bytes 0..1  zero
//   byte  2     element type: 0x08 = u8, the only one taken
//   byte  3     number of dimensions, 1..8
//   then        each dimension, u32 big endian
//   then        the elements, row-major; the file ends with them
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "collectives/base/result.h"
#include "daemon/data/array.h"
#include "daemon/data/node_share.h"

namespace gaccd {

// The array in `file`. Of a plain file it is a view, with no owner; a compressed one is
// decompressed into memory of its own, never more than its header says, and only when a file of
// this size can hold so much. Errors: kData with `name`, the expected and the found value;
// NoMemory(). With `share`, that of the leader, it is decompressed into memory of the node.
Result<Array> DecodeIdx(const std::string& name, std::span<const std::byte> file,
                        NodeShare* share = nullptr);

// The same of a file, which is mapped as long as the array is a view of it, or of what the leader
// of the node has decompressed. Errors: also kIo.
Result<Array> LoadIdx(const std::string& path, NodeShare* share = nullptr);

}  // namespace gaccd
