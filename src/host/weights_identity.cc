#include "host/weights_identity.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/rng.h"
#include "host/sha256.h"

namespace shoal {
namespace {

constexpr uint64_t kForm = 1;        // of what follows; rises when its meaning changes
constexpr uint64_t kSketchForm = 2;  // likewise, of sketches
constexpr uint64_t kPortable = 1;    // the arithmetic: the bits of kernels.h

constexpr uint64_t kSmallBytes = 4096;        // of a tensor that is hashed as a whole
constexpr uint64_t kPieceBytes = 1024;        // of one that is not
constexpr uint64_t kPiecesMax = 1024;         // of a model: each may be a page to be read from a disk
constexpr uint64_t kHeadBytesMax = 64 << 20;  // of a file
constexpr size_t kDescriptionBytesMax = 64u << 20;

void add_text(Sha256& hash, std::string_view text) {
  hash.add_number(text.size());
  hash.add(text.data(), text.size());
}

// What comes before the first tensor.
void add_head(Sha256& hash, const MappedFile& file, const WeightMap& weights) {
  uint64_t head = std::min<uint64_t>(file.bytes().size(), kHeadBytesMax);
  for (const auto& [name, view] : weights.all()) {
    if (file.holds(view.data)) head = std::min(head, static_cast<uint64_t>(view.data - file.bytes().data()));
  }
  hash.add_number(file.bytes().size());
  hash.add_number(head);
  hash.add(file.bytes().data(), head);
}

void add_tensors(Sha256& hash, const WeightMap& weights) {
  const std::map<std::string_view, const TensorView*> tensors = [&] {
    std::map<std::string_view, const TensorView*> sorted;
    for (const auto& [name, view] : weights.all()) sorted.emplace(name, &view);
    return sorted;
  }();
  const uint64_t every = tensors.size() / kPiecesMax + 1;
  uint64_t index = 0;
  for (const auto& [name, view] : tensors) {
    add_text(hash, name);
    add_text(hash, dtype_name(view->dtype));
    for (const uint64_t extent : view->shape.dims()) hash.add_number(extent);
    hash.add_number(view->bytes);
    if (index++ % every != 0 || view->data == nullptr) continue;
    const bool whole = view->bytes <= kSmallBytes;
    const uint64_t at = whole ? 0 : mix64(mix64(index)) % (view->bytes - kPieceBytes);
    hash.add(view->data + at, whole ? view->bytes : kPieceBytes);
  }
}

void add_options(Sha256& hash, const LoadOptions& options) {
  for (const uint64_t part : {kForm, kPortable, static_cast<uint64_t>(options.quantization), static_cast<uint64_t>(options.kv_type)}) hash.add_number(part);
}

}  // namespace

Status add_descriptions(Sha256& hash, const Checkpoint& checkpoint) {
  for (const auto& [path, identity] : checkpoint.described_by) {
    const bool there = identity != FileIdentity{};
    ASSIGN_OR_RETURN(const std::string text, there ? read_file(path, kDescriptionBytesMax) : StatusOr<std::string>(std::string()));
    add_text(hash, text);
  }
  return OkStatus();
}

StatusOr<ModelDigest::Content> sketch_of(const Checkpoint& checkpoint) {
  Sha256 hash;
  hash.add_number(kSketchForm);
  for (const auto& file : checkpoint.files) add_head(hash, *file, checkpoint.weights);
  RETURN_IF_ERROR(add_descriptions(hash, checkpoint));
  add_tensors(hash, checkpoint.weights);
  RETURN_IF_ERROR(checkpoint.check());
  if (!checkpoint.current()) return data_loss(checkpoint.path, ": was replaced while it was being opened");
  return hash.result();
}

uint64_t weights_stamp(const ModelDigest::Content& sketch, const LoadOptions& options) {
  Sha256 hash;
  add_options(hash, options);
  hash.add(sketch.data(), sketch.size());
  const ModelDigest::Content result = hash.result();
  uint64_t stamp = 0;
  for (int i = 0; i < 8; ++i) stamp |= uint64_t{result[static_cast<size_t>(i)]} << (8 * i);
  return std::max<uint64_t>(stamp, 1);
}

ModelDigest::Content weights_content(const ModelDigest::Content& files, const LoadOptions& options) {
  Sha256 hash;
  add_options(hash, options);
  hash.add(files.data(), files.size());
  return hash.result();
}

}  // namespace shoal
