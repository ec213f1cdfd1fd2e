// What each SIMD file hands to the backend table (backend.cc): the functions of the target that Highway has chosen.
#pragma once

#include "kernels/kernels.h"
#include "kernels/pack.h"

namespace shoal {

using LinearFunction = void (*)(const LinearCall&, size_t panel_begin, size_t panel_end);
LinearFunction chosen_float_linear();      // formats kF32, kF16, kBF16
struct QuantizedLinear {
  LinearFunction function;
  bool pairs;  // Kernels::quant_pairs
};
QuantizedLinear chosen_quantized_linear();  // the other formats

// Packs one panel whose packed form holds the stored bits in another order, or floats to Q8_0 and Q4_0; false if this panel
// is not one, and then nothing is written. Null on a target without SIMD.
using PackFunction = bool (*)(const PanelSource&, WeightFormat, std::byte* panel);
PackFunction chosen_panel_packer();

// attention, merge_attention and store_kv.
struct AttentionFunctions {
  void (*attention)(const AttentionCall&);
  void (*merge)(const AttentionCall&);
  void (*store_kv)(const StoreKvCall&);
};
AttentionFunctions chosen_attention();

struct RecurrenceFunctions {
  void (*convolve)(const ConvolveCall&);
  void (*scan)(const ScanCall&);
};
RecurrenceFunctions chosen_recurrence();

using IndexScoresFunction = void (*)(const IndexScoresCall&);
IndexScoresFunction chosen_index_scores();

// Sets quantize_row, by what quant_pairs says already, and what else is done element by element, norms and rope included.
void choose_elementwise(Kernels& kernels);

}  // namespace shoal
