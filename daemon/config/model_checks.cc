#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/config/job_checks.h"

namespace gaccd {
namespace {

Status WrongModel(const std::string& message) { return {ErrorKind::kConfig, message}; }

// Sizes of images and kernels: one value for both dimensions, or height and width.
Status CheckPairs(const LayerSpec& layer, const std::string& where) {
  const auto check = [&](std::string_view field, const std::vector<std::int64_t>& values) {
    if (values.size() <= 2) return Status::Ok();
    return WrongModel(StrCat(where, ".", field, ": expected one value, or height and width, found ",
                             values.size(), " values"));
  };
  return std::visit(
      [&](const auto& kind) -> Status {
        if constexpr (requires { kind.kernel_size; }) {
          GACCD_RETURN_IF_ERROR(check("kernel_size", kind.kernel_size));
          GACCD_RETURN_IF_ERROR(check("stride", kind.stride));
          GACCD_RETURN_IF_ERROR(check("padding", kind.padding));
        }
        if constexpr (requires { kind.dilation; }) {
          GACCD_RETURN_IF_ERROR(check("dilation", kind.dilation));
        }
        if constexpr (requires { kind.output_size; }) return check("output_size", kind.output_size);
        return {};
      },
      layer.kind);
}

Status CheckGhostSize(std::string_view where, BatchStatistics stats, std::int64_t ghost_size) {
  if (stats == BatchStatistics::kGhost || ghost_size == BatchNormSpec().ghost_size) return {};
  return WrongModel(StrCat(where, ".ghost_size: needs stats ghost, found ghost_size ", ghost_size,
                           " and stats ", Name(stats)));
}

Status CheckLayers(std::span<const LayerSpec> layers, std::string_view where) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string layer = StrCat(where, ".layer[", i, "]");
    if (!names.insert(layers[i].name).second) {
      return WrongModel(StrCat(layer, ".name: two layers are called '", layers[i].name, "'"));
    }
    GACCD_RETURN_IF_ERROR(CheckPairs(layers[i], layer));
    const auto* norm = std::get_if<BatchNormSpec>(&layers[i].kind);
    if (norm == nullptr) continue;
    GACCD_RETURN_IF_ERROR(CheckGhostSize(layer + ".batch_norm", norm->stats, norm->ghost_size));
  }
  return {};
}

Status CheckDualEncoder(const DualEncoderSpec& dual) {
  for (const TowerSpec* tower : {&dual.a, &dual.b}) {
    GACCD_RETURN_IF_ERROR(CheckLayers(
        tower->layer, tower == &dual.a ? "model.dual_encoder.a" : "model.dual_encoder.b"));
  }
  if (dual.max_scale == 0 || dual.temperature * dual.max_scale >= 1) return {};
  return WrongModel(StrCat("model.dual_encoder.max_scale: expected at least 1 / temperature = ",
                           1 / dual.temperature, ", or 0 for no limit, found ", dual.max_scale));
}

Status CheckHeadWidth(std::string_view field, std::int64_t width, std::int64_t heads) {
  if (width % heads == 0) return {};
  return WrongModel(
      StrCat("model.", field, ".heads: must divide the width ", width, ", found ", heads));
}

Status CheckVit(const VitSpec& vit) {
  if (vit.image_size % vit.patch_size != 0) {
    return WrongModel(StrCat("model.vit.patch_size: must divide the image_size ", vit.image_size,
                             ", found ", vit.patch_size));
  }
  if (static_cast<double>(vit.width) * vit.mlp_ratio < 1) {
    return WrongModel(StrCat("model.vit.mlp_ratio: expected at least 1 / width = 1 / ", vit.width,
                             ", found ", vit.mlp_ratio));
  }
  return CheckHeadWidth("vit", vit.width, vit.heads);
}

// Rejects fields that would have no effect together with another one.
Status CheckResnet(const ResnetSpec& resnet) {
  constexpr std::size_t kMaxStages = 8;
  const std::int64_t depth = resnet.depth;
  const std::size_t stages = resnet.blocks.size();
  if (stages > kMaxStages) {
    return WrongModel(
        StrCat("model.resnet.blocks: expected at most ", kMaxStages, " stages, found ", stages));
  }
  if (stages == 0 && depth != 18 && depth != 34 && depth != 50) {
    return WrongModel(
        StrCat("model.resnet.depth: expected 18, 34 or 50, or blocks, found ", depth));
  }
  if (stages > 0 && depth != ResnetSpec().depth) {
    return WrongModel(StrCat("model.resnet: expected depth or blocks, found depth ", depth,
                             " and blocks of ", stages, " stages"));
  }
  if (stages == 0 && depth != 50 && resnet.block == ResnetBlock::kBottleneck) {
    return WrongModel(
        StrCat("model.resnet.block: bottleneck needs blocks or depth 50, found depth ", depth,
               " and no blocks"));
  }
  if (resnet.groups > 0 && resnet.stats != BatchStatistics::kWindow) {
    return WrongModel(StrCat("model.resnet.stats: ", Name(resnet.stats),
                             " needs batch norms, groups 0, found groups ", resnet.groups));
  }
  return CheckGhostSize("model.resnet", resnet.stats, resnet.ghost_size);
}

Status CheckArchitecture(const ModelSpec& model) {
  if (const auto* mlp = std::get_if<MlpSpec>(&model.architecture); mlp && mlp->widths.size() < 2) {
    return WrongModel(StrCat("model.mlp.widths: expected at least 2, found ", mlp->widths.size()));
  }
  if (const auto* resnet = std::get_if<ResnetSpec>(&model.architecture)) {
    return CheckResnet(*resnet);
  }
  if (const auto* graph = std::get_if<GraphSpec>(&model.architecture)) {
    return CheckGhostSize("model.graph", graph->stats, graph->ghost_size);
  }
  if (const auto* gpt = std::get_if<GptSpec>(&model.architecture)) {
    return CheckHeadWidth("gpt", gpt->width, gpt->heads);
  }
  if (const auto* bert = std::get_if<BertSpec>(&model.architecture)) {
    return CheckHeadWidth("bert", bert->width, bert->heads);
  }
  if (const auto* vit = std::get_if<VitSpec>(&model.architecture)) return CheckVit(*vit);
  if (const auto* dual = std::get_if<DualEncoderSpec>(&model.architecture)) {
    return CheckDualEncoder(*dual);
  }
  return {};
}

}  // namespace

Status CheckOneArchitecture(const ModelSpec& model) {
  const bool has_layers = !model.layer.empty();
  if (has_layers == std::holds_alternative<std::monostate>(model.architecture)) return {};
  return WrongModel(has_layers
                        ? "model: has layers and an architecture, expected one of them"
                        : "model.layer: is required, at least one, or mlp, gpt, bert, resnet, "
                          "graph or dual_encoder");
}

Status CheckModel(const ModelSpec& model) {
  GACCD_RETURN_IF_ERROR(CheckArchitecture(model));
  return CheckLayers(model.layer, "model");
}

}  // namespace gaccd
