// Which weights computed an answer, by two names that every machine gives to equal files: a stamp of what the files say and of samples
// of what they hold, which takes a millisecond, and a digest of all their bytes, which takes as long as reading them.
#pragma once

#include <cstdint>

#include "base/model_digest.h"
#include "formats/checkpoint.h"
#include "host/sha256.h"
#include "models/model.h"

namespace shoal {

// The files that say how to read a model.
Status add_descriptions(Sha256& hash, const Checkpoint& checkpoint);

// SHA-256 of sizes, headers, the files that say how to read them, the table of tensors, all of each small tensor and a piece of each
// larger one, where a number generator of fixed seed says. DataLoss if the files changed meanwhile.
StatusOr<ModelDigest::Content> sketch_of(const Checkpoint& checkpoint);

// Of the sketch and of what is done with the files: weights quantised at load and the type of KV entries change the bits of an answer,
// F16 and BF16 too, whose bytes are equally many. Never 0. The value is for ever: it crosses the wire.
uint64_t weights_stamp(const ModelDigest::Content& sketch, const LoadOptions& options);

// Likewise of all that the files hold (host/content_hasher.h).
ModelDigest::Content weights_content(const ModelDigest::Content& files, const LoadOptions& options);

}  // namespace shoal
