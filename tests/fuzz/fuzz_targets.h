// The fuzz targets of the program `fuzz`: each takes one input, reads it, and checks its promises.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gaccd {

using FuzzTarget = int(const std::uint8_t* data, std::size_t size);
FuzzTarget FuzzCheckpointManifest, FuzzCheckpointShard, FuzzCsv, FuzzDataJson, FuzzEvent,
    FuzzFailureRecord, FuzzGraph, FuzzHeartbeatFrame, FuzzIdx, FuzzImage, FuzzJobText,
    FuzzMatmulChoices, FuzzNpy, FuzzOwner, FuzzRunFolder, FuzzSafetensors, FuzzSet, FuzzSite,
    FuzzSlurm, FuzzTar, FuzzTokenizer, FuzzVerdict;

}  // namespace gaccd
