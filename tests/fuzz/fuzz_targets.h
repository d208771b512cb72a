// The fuzz targets of the program `fuzz`: each takes one input, reads it, and checks its promises.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gaccd {

int FuzzCheckpointManifest(const std::uint8_t* data, std::size_t size);
int FuzzCheckpointShard(const std::uint8_t* data, std::size_t size);
int FuzzCsv(const std::uint8_t* data, std::size_t size);
int FuzzDataJson(const std::uint8_t* data, std::size_t size);
int FuzzEvent(const std::uint8_t* data, std::size_t size);
int FuzzFailureRecord(const std::uint8_t* data, std::size_t size);
int FuzzGraph(const std::uint8_t* data, std::size_t size);
int FuzzHeartbeatFrame(const std::uint8_t* data, std::size_t size);
int FuzzIdx(const std::uint8_t* data, std::size_t size);
int FuzzImage(const std::uint8_t* data, std::size_t size);
int FuzzJobText(const std::uint8_t* data, std::size_t size);
int FuzzMatmulChoices(const std::uint8_t* data, std::size_t size);
int FuzzNpy(const std::uint8_t* data, std::size_t size);
int FuzzOwner(const std::uint8_t* data, std::size_t size);
int FuzzRunFolder(const std::uint8_t* data, std::size_t size);
int FuzzSafetensors(const std::uint8_t* data, std::size_t size);
int FuzzSet(const std::uint8_t* data, std::size_t size);
int FuzzSite(const std::uint8_t* data, std::size_t size);
int FuzzSlurm(const std::uint8_t* data, std::size_t size);
int FuzzTar(const std::uint8_t* data, std::size_t size);
int FuzzTokenizer(const std::uint8_t* data, std::size_t size);
int FuzzVerdict(const std::uint8_t* data, std::size_t size);

}  // namespace gaccd
