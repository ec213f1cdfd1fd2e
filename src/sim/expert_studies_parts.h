// The studies that go message by message, for the table of expert_studies.cc.
#pragma once

#include "sim/expert_studies.h"

namespace shoal {

StudyTable grow_study(uint64_t seed);
StudyTable losses_study(uint64_t seed);
StudyTable placement_study(uint64_t seed);
StudyTable lanes_study(uint64_t seed);
StudyTable transport_study(uint64_t seed);
StudyTable batch_rule_study(uint64_t seed);

}  // namespace shoal
