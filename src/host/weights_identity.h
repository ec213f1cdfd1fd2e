// Which weights computed an answer: a stamp that every process of this machine gives to the same files, and a digest that every
// machine gives to equal ones.
#pragma once

#include <cstdint>
#include <span>

#include "base/model_digest.h"
#include "formats/mapped_file.h"
#include "models/model.h"

namespace shoal {

// Of the files as they are on the disk (device, inode, size, time of the last change) and of what was done with them: weights
// quantised at load and the type of KV entries change the bits of an answer, F16 and BF16 too, whose bytes are equally many.
// Two machines give different numbers to copies of a file. Never 0. The value is for ever: it crosses the wire.
uint64_t weights_identity(std::span<const FileIdentity> files, const LoadOptions& options);

// Likewise of what the files hold (host/content_hasher.h), for every machine.
ModelDigest::Content weights_content(const ModelDigest::Content& files, const LoadOptions& options);

}  // namespace shoal
