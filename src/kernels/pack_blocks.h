// Packing of the common block types, whose packed form holds the stored codes and scales in another order: no number is
// read, bytes and bits only change places. Internal to packing.
#pragma once

#include <cstddef>

#include "kernels/pack.h"

namespace shoal {

// Packs one panel if the stored type is Q8_0, Q4_0, Q4_K or Q6_K (whose natural format it is packed to); false for others.
bool pack_stored_blocks(const PanelSource& source, std::byte* panel);

}  // namespace shoal
