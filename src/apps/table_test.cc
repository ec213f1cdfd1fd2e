#include "apps/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Table models() {
  Table table({{"NAME"}, {"SIZE", 1, true}, {"FORMAT", 2}, {"STATE"}});
  table.row({"tiny-llama", "3.02 MiB", "safetensors", "loaded"});
  table.row({"größe-and-a-long-name", "12 B", "gguf", "-"});
  return table;
}

TEST(Table, ColumnsAreAsWideAsWhatIsInThem) {
  EXPECT_EQ(models().text(0),
            "NAME                       SIZE  FORMAT       STATE\n"
            "tiny-llama             3.02 MiB  safetensors  loaded\n"
            "größe-and-a-long-name      12 B  gguf         -\n");
}

TEST(Table, WhatANarrowTerminalHasNoRoomForIsNamed) {
  EXPECT_EQ(models().text(40),
            "NAME                       SIZE  STATE\n"
            "tiny-llama             3.02 MiB  loaded\n"
            "größe-and-a-long-name      12 B  -\n"
            "not shown: FORMAT (--json, or a wider\n"
            "  terminal)\n");
  EXPECT_EQ(models().lines(17).rows.back(), "größe-an…  -");
  EXPECT_THAT(models().lines(17).left_out, ElementsAre("SIZE", "FORMAT"));
}

TEST(Table, NoLineIsWiderThanTheTerminalAndNoHeadingIsCut) {
  for (size_t width = 16; width < 60; ++width) {
    const Table::Lines lines = models().lines(width);
    for (const std::string& row : lines.rows) EXPECT_LE(columns_of(row), width);
    EXPECT_LE(columns_of(lines.heading), width);
    EXPECT_THAT(lines.heading, HasSubstr("NAME"));
    EXPECT_THAT(lines.heading, HasSubstr("STATE"));
  }
}

TEST(Table, ATextMayTakeThePlaceOfTheCellsAndGroupsHaveARule) {
  Table table({{"NAME"}, {"A", 1, true, 3, true}, {"B", 2, true, 5}});
  table.row({"one", "1", "2"});
  table.row({"two", "not feasible: too small by far"});
  EXPECT_EQ(table.text(0), "NAME |   A      B\none  |   1      2\ntwo  | not feasible: too small by far\n");
  EXPECT_EQ(table.text(16), "NAME |   A\none  |   1\ntwo  | not\n  feasible: too\n  small by far\nnot shown: B\n  (--json, or a\n  wider\n  terminal)\n");
}

TEST(WrapText, BreaksAtSpacesAndElsewhereOnlyInAWordThatIsTooLong) {
  EXPECT_THAT(wrap_text("one two three", 8, 2), ElementsAre("one two", "  three"));
  EXPECT_THAT(wrap_text("/a/path/that/is/long x", 10), ElementsAre("/a/path/th", "at/is/long", "x"));
  EXPECT_THAT(wrap_text("as it is", 0), ElementsAre("as it is"));
  EXPECT_THAT(wrap_text("", 10), ElementsAre(""));
}

}  // namespace
}  // namespace shoal
