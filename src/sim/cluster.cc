#include "sim/cluster.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"

namespace shoal {
namespace {

constexpr double kGiB = 1073741824.0;
constexpr uint32_t kDevicesMax = 10'000;
constexpr uint32_t kModelLenMin = 1024;  // a device that leaves room for less does not hold the model

StepCost cost_of(const ClusterSpec& spec, const ModelShape& model, const Hardware& hardware) {
  const FittedCost* measured = spec.costs == nullptr ? nullptr : spec.costs->find(model.name, hardware.name);
  return measured != nullptr ? measured->cost : roofline(model, hardware);
}

NodeModel facts_of(const ClusterSpec& spec, uint32_t id) {
  const ModelShape& shape = *spec.models[id];
  NodeModel model;
  model.model = ModelId(id);
  model.name = absl::StrCat(shape.name, "#", id);
  model.weight_bytes = shape.weight_bytes;
  model.kv_block_bytes = shape.kv_bytes_per_token * kTokensPerBlock;
  model.max_model_len = std::min(spec.max_model_len, shape.max_len);
  model.vocab_size = 1 << 17;
  model.pooling.slo = spec.slo;
  model.pooling.ttft_loads = 0;  // it is meant
  return model;
}

// Of `rooms` equal ones, and as much again for KV: one more would leave none.
uint64_t room_bytes(const ClusterSpec& spec, uint32_t pages) { return div_up(pages, spec.rooms + 1) * kPageBytes; }

// Each model on as few devices as hold them all once; what is left over serves the first ones again.
void spread_static(std::vector<NodeSpec>& nodes) {
  const size_t models = nodes.front().config.models.size();
  size_t next = 0;
  for (NodeSpec& node : nodes) {
    uint64_t pages = 0;
    for (size_t tried = 0; tried < models; ++tried, ++next) {
      NodeModel& model = node.config.models[next % models];
      const uint64_t needed = div_up(model.weight_bytes, kPageBytes) + kv_pages_min(model);
      if (model.pooling.pinned || pages + needed > node.config.pages) break;
      pages += needed;
      model.pooling.pinned = true;
      node.serves.push_back(model.model);
    }
  }
}

// The narrowest that would hold the model, as a hint.
std::string wider_gang(const ClusterSpec& spec, const NodeModel& model, const DeviceGroup& group) {
  for (const uint32_t degree : kTensorDegrees) {
    const auto pages = static_cast<uint32_t>(tensor_gang(*group.hardware, degree).memory_bytes * spec.memory_share / kPageBytes);
    if (fitting_model_len(model, pages, model.max_model_len) >= kModelLenMin) return absl::StrCat("; a gang of ", degree, " holds it: ", degree, "x", group.hardware->name, ":tp", degree);
  }
  return "; not even a gang of 8 holds it";
}

StatusOr<NodeSpec> make_node(const ClusterSpec& spec, const DeviceGroup& group) {
  const Hardware hardware = tensor_gang(*group.hardware, group.tensor);
  NodeSpec node;
  node.kind = hardware.name;
  node.price_per_hour = hardware.price_per_hour;
  node.load_seconds = spec.load_seconds;
  node.load_bytes_per_second = spec.load_bytes_per_second > 0 ? spec.load_bytes_per_second * group.tensor : hardware.link_bytes_per_second;
  node.copy_bytes_per_second = node.load_bytes_per_second;
  node.shared_link = true;
  NodeConfig& config = node.config;
  config.pages = static_cast<uint32_t>(hardware.memory_bytes * spec.memory_share / kPageBytes);
  config.host_pages = static_cast<uint32_t>(spec.host_bytes * group.tensor / kPageBytes);
  config.gateways = {kRouterId};
  config.limits = spec.limits;
  config.scheduling = spec.scheduling;
  config.turns = spec.turns;
  config.load_bytes_per_second = node.load_bytes_per_second;
  config.status_interval = spec.status_interval;
  for (uint32_t id = 0; id < spec.models.size(); ++id) {
    NodeModel model = facts_of(spec, id);
    const uint32_t fits = fitting_model_len(model, config.pages, model.max_model_len);
    if (fits < kModelLenMin) {
      return invalid_argument(absl::StrFormat("model %s (%.1f GiB of weights) does not fit %s, of which %.1f GiB are for weights and KV", model.name,
                                              static_cast<double>(model.weight_bytes) / kGiB, hardware.name,
                                              static_cast<double>(config.pages) * kPageBytes / kGiB), wider_gang(spec, model, group));
    }
    model.max_model_len = fits;
    node.load_bytes.push_back(model.weight_bytes);
    if (spec.rooms > 0) model.weight_bytes = std::max(model.weight_bytes, room_bytes(spec, config.pages));
    config.models.push_back(model);
    node.steps.push_back(tensor_cost(*spec.models[id], *group.hardware, cost_of(spec, *spec.models[id], *group.hardware), group.tensor));
  }
  return node;
}

// Of "16xH800:tp4"; 1 without.
StatusOr<uint32_t> tensor_degree(const std::string& item) {
  const size_t colon = item.find(':');
  if (colon == std::string::npos) return 1;
  const absl::string_view said = absl::string_view(item).substr(colon + 1);
  for (const uint32_t degree : kTensorDegrees) {
    if (said == absl::StrCat("tp", degree)) return degree;
  }
  return invalid_argument("'", item, "': '", said, "' is none of tp1, tp2, tp4, tp8 (devices that compute as one)");
}

StatusOr<std::pair<std::string, uint32_t>> name_and_count(const std::string& item, char separator, bool count_first) {
  const size_t at = item.find(separator);
  if (at == std::string::npos) return std::pair(item, 1u);
  const std::string count = count_first ? item.substr(0, at) : item.substr(at + 1);
  uint32_t number = 0;
  if (!absl::SimpleAtoi(count, &number) || number == 0 || number > kDevicesMax) {
    return invalid_argument("'", item, "': '", count, "' is not a number from 1 to ", kDevicesMax);
  }
  return std::pair(count_first ? item.substr(at + 1) : item.substr(0, at), number);
}

}  // namespace

std::string to_string(const DeviceGroup& group) { return absl::StrCat(group.count, "x", tensor_gang(*group.hardware, group.tensor).name); }

std::string to_string(const std::vector<DeviceGroup>& groups) {
  return absl::StrJoin(groups, " + ", [](std::string* out, const DeviceGroup& group) { out->append(to_string(group)); });
}

StatusOr<std::vector<NodeSpec>> make_nodes(const ClusterSpec& spec) {
  if (spec.models.empty()) return invalid_argument("there is no model to serve");
  std::vector<NodeSpec> nodes;
  for (const DeviceGroup& group : spec.devices) {
    if (spec.prefill > 0 && spec.prefill >= group.nodes()) {
      return invalid_argument(spec.prefill, " of ", to_string(group), " for prompts leave none to decode");
    }
    ASSIGN_OR_RETURN(NodeSpec node, make_node(spec, group));
    for (uint32_t i = 0; i < group.nodes(); ++i) {
      node.config.self = NodeId(static_cast<uint32_t>(nodes.size()));
      if (spec.prefill > 0) node.config.instance_role = i < spec.prefill ? InstanceRole::kPrefill : InstanceRole::kDecode;
      nodes.push_back(node);
    }
  }
  if (nodes.empty()) return invalid_argument("there is no device");
  if (nodes.size() > kDevicesMax) return invalid_argument("more than ", kDevicesMax, " devices");
  if (spec.scheduling == Scheduling::kStatic) spread_static(nodes);
  return nodes;
}

std::vector<uint32_t> model_lengths(const std::vector<NodeSpec>& nodes) {
  std::vector<uint32_t> lengths;
  for (const NodeModel& model : nodes.front().config.models) lengths.push_back(model.max_model_len);
  for (const NodeSpec& node : nodes) {
    for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = std::min(lengths[i], node.config.models[i].max_model_len);
  }
  return lengths;
}

StatusOr<std::vector<DeviceGroup>> parse_devices(const std::string& text) {
  std::vector<DeviceGroup> groups;
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(text, ','))) {
    ASSIGN_OR_RETURN(const auto parsed, name_and_count(item.substr(0, item.find(':')), 'x', /*count_first=*/true));
    const Hardware* hardware = find_hardware(parsed.first);
    if (hardware == nullptr) {
      std::string known;
      for (const Hardware& h : known_hardware()) absl::StrAppend(&known, known.empty() ? "" : ", ", h.name);
      return invalid_argument("'", item, "': '", parsed.first, "' is no known device; known are ", known);
    }
    ASSIGN_OR_RETURN(const uint32_t tensor, tensor_degree(item));
    if (parsed.second % tensor != 0) return invalid_argument("'", item, "': ", parsed.second, " devices make no whole gangs of ", tensor);
    groups.push_back({hardware, parsed.second, tensor});
  }
  return groups;
}

StatusOr<std::vector<const ModelShape*>> parse_model_mix(const std::string& text, uint32_t count, std::span<const ModelShape> own) {
  struct Share {
    const ModelShape* shape;
    uint32_t weight;
    double due = 0;  // how far behind its share it is
  };
  std::vector<Share> shares;
  double sum = 0;
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(text, ','))) {
    ASSIGN_OR_RETURN(const auto parsed, name_and_count(item, ':', /*count_first=*/false));
    const auto given = std::find_if(own.begin(), own.end(), [&](const ModelShape& m) { return m.name == parsed.first; });
    const ModelShape* shape = given != own.end() ? &*given : find_model_shape(parsed.first);
    if (shape == nullptr) {
      std::string known;
      for (const ModelShape& m : known_model_shapes()) absl::StrAppend(&known, known.empty() ? "" : ", ", m.name);
      return invalid_argument("'", item, "': '", parsed.first, "' is no known model; known are ", known);
    }
    shares.push_back({shape, parsed.second});
    sum += parsed.second;
  }
  std::vector<const ModelShape*> models;
  while (models.size() < count) {
    for (Share& share : shares) share.due += share.weight / sum;
    const auto next = std::max_element(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.due < b.due; });
    next->due -= 1;
    models.push_back(next->shape);
  }
  return models;
}

}  // namespace shoal
