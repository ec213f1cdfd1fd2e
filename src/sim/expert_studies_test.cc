#include "sim/expert_studies.h"

#include <gtest/gtest.h>

#include <set>

namespace shoal {
namespace {

TEST(ExpertStudies, HaveNamesOfTheirOwnAndTellWhichThereAre) {
  std::set<std::string_view> names;
  for (const ExpertStudy& study : expert_studies()) EXPECT_TRUE(names.insert(study.name).second) << study.name;
  EXPECT_EQ((*find_expert_study("afd"))->name, "afd");
  const auto none = find_expert_study("adf");
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_NE(std::string(none.status().message()).find("afd"), std::string::npos);
}

// Those in aggregate, which take no time: full tables, each saying how it came about.
TEST(ExpertStudies, EveryRowHasACellForEveryColumn) {
  for (const char* name : {"way", "afd", "ratio", "load", "elastic", "price", "transport"}) {
    const StudyTable table = (*find_expert_study(name))->run(1);
    EXPECT_FALSE(table.rows.empty()) << name;
    EXPECT_TRUE(table.how.starts_with("aggregate") || table.how.starts_with("messages")) << name;
    for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size()) << name;
  }
}

TEST(ExpertStudies, TheWayIsThePublishedOne) {
  const StudyTable table = (*find_expert_study("way"))->run(1);
  EXPECT_EQ(table.rows[0][3], "551");   // direct, attention side; "at least 550"
  EXPECT_EQ(table.rows[0][4], "1101");  // experts side
  EXPECT_EQ(table.rows[0][5], "137");   // two phases
  EXPECT_EQ(table.rows[0][6], "274");
}

TEST(ExpertStudies, OneDeviceAtATimeSavesWhatUnitsOfSixteenCannot) {
  const StudyTable table = (*find_expert_study("elastic"))->run(1);
  EXPECT_EQ(table.rows[0][4], "37.5 %");
  EXPECT_EQ(table.rows[2][4], "25.0 %");
}

}  // namespace
}  // namespace shoal
