#include "text/grammar/code_point_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/grammar/trigger_scanner.h"

namespace shoal::grammar {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Range = CodePointRange;

TEST(CodePointSet, RangesThatOverlapOrTouchBecomeOne) {
  EXPECT_THAT(CodePointSet({{'d', 'f'}, {'a', 'c'}}).ranges(), ElementsAre(Range{'a', 'f'}));
  EXPECT_THAT(CodePointSet({{'a', 'c'}, {'e', 'g'}, {'b', 'f'}}).ranges(), ElementsAre(Range{'a', 'g'}));
  EXPECT_THAT(CodePointSet({{'a', 'b'}, {'d', 'e'}}).ranges(), ElementsAre(Range{'a', 'b'}, Range{'d', 'e'}));
  EXPECT_THAT(CodePointSet({{'x', 'z'}, {'a', 'a'}, {'y', 'y'}}).ranges(), ElementsAre(Range{'a', 'a'}, Range{'x', 'z'}));
  EXPECT_THAT(CodePointSet({{'b', 'a'}}).ranges(), IsEmpty()) << "upside down is nothing";
}

TEST(CodePointSet, SurrogatesAreNeverIn) {
  EXPECT_THAT(CodePointSet({{0xD000, 0xE100}}).ranges(), ElementsAre(Range{0xD000, 0xD7FF}, Range{0xE000, 0xE100}));
  EXPECT_THAT(CodePointSet({{0xD800, 0xDFFF}}).ranges(), IsEmpty());
  EXPECT_THAT(CodePointSet().complement().ranges(), ElementsAre(Range{0, 0xD7FF}, Range{0xE000, kCodePointMax}));
  EXPECT_THAT(CodePointSet({{'a', 0x7FFFFFFF}}).complement().ranges(), ElementsAre(Range{0, '`'})) << "nothing lies beyond Unicode";
}

TEST(CodePointSet, TheComplementOfTheComplementIsTheSet) {
  for (const CodePointSet& set : {CodePointSet(), CodePointSet({{0, 0}}), CodePointSet({{kCodePointMax, kCodePointMax}}), CodePointSet({{'a', 'z'}, {0xD700, 0xE001}})}) {
    EXPECT_EQ(set.complement().complement().ranges(), set.ranges());
  }
  EXPECT_TRUE(CodePointSet({{0, kCodePointMax}}).complement().empty());
}

TEST(CodePointSet, MinusTakesAwayWhatIsThere) {
  EXPECT_THAT(CodePointSet({{'a', 'z'}}).minus(CodePointSet::of("aeiz")).ranges(),
              ElementsAre(Range{'b', 'd'}, Range{'f', 'h'}, Range{'j', 'y'}));
  EXPECT_TRUE(CodePointSet::of("abc").minus({{'a', 'c'}}).empty());
  EXPECT_THAT(CodePointSet::of("b").minus(CodePointSet::of("xyz")).ranges(), ElementsAre(Range{'b', 'b'}));
}

TEST(CodePointSet, MembershipIsThatOfASetThatIsAskedOneByOne) {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    CodePointSet set;
    bool plain[64] = {};
    for (uint64_t n = rng.below(6); n > 0; --n) {
      const auto first = static_cast<char32_t>(rng.below(64)), last = static_cast<char32_t>(rng.below(64));
      set.add(first, last);
      for (char32_t c = first; c <= last; ++c) plain[c] = true;
    }
    for (char32_t c = 0; c < 64; ++c) ASSERT_EQ(set.contains(c), plain[c]) << round << " " << static_cast<int>(c);
    for (size_t i = 1; i < set.ranges().size(); ++i) ASSERT_GT(set.ranges()[i].first, set.ranges()[i - 1].last + 1) << "ascending, not touching";
  }
}

TEST(CodePointSet, AsAClassOfGbnfItsBracketsAndDashesAreEscaped) {
  EXPECT_EQ(CodePointSet({{'a', 'z'}}).gbnf(), "[a-z]");
  EXPECT_EQ(CodePointSet({{'a', 'b'}}).gbnf(), "[ab]");
  EXPECT_EQ(CodePointSet::of("]").gbnf(), "[\\x5D]");
  EXPECT_EQ(CodePointSet::of("^-\\[ ").gbnf(), "[ \\x2D\\x5B\\x5C\\x5E]");
  EXPECT_EQ(CodePointSet({{0, 0x1F}, {0xE9, 0xE9}, {0x4E00, 0x9FA5}, {0x1F642, 0x1F642}}).gbnf(), "[\\x00-\\x1F\\xE9\\u4E00-\\u9FA5\\U0001F642]");
}

// The first place where any trigger ends, found by looking for each at every place.
size_t first_end(const std::vector<std::string>& triggers, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    for (const std::string& trigger : triggers) {
      if (text.substr(0, end).ends_with(trigger)) return end;
    }
  }
  return 0;
}

TEST(TriggerScanner, FindsTheFirstThatIsCompleteWhateverTheyShare) {
  Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> triggers(1 + rng.below(4));
    for (std::string& trigger : triggers) {
      for (uint64_t n = 1 + rng.below(5); n > 0; --n) trigger += static_cast<char>('a' + rng.below(2));
    }
    std::string text;
    for (int i = 0; i < 12; ++i) text += static_cast<char>('a' + rng.below(3));
    const TriggerScanner scanner(triggers);
    size_t found = 0;
    uint32_t state = scanner.start();
    for (size_t i = 0; i < text.size() && found == 0; ++i) {
      state = scanner.step(state, static_cast<uint8_t>(text[i]));
      if (state == TriggerScanner::kFound) found = i + 1;
    }
    ASSERT_EQ(found, first_end(triggers, text)) << text << " " << testing::PrintToString(triggers);
  }
}

TEST(TriggerScanner, WithoutTriggersNothingIsFound) {
  const TriggerScanner scanner({});
  EXPECT_TRUE(scanner.empty());
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(scanner.step(scanner.start(), static_cast<uint8_t>(byte)), scanner.start());
}

TEST(TriggerScanner, BytesAboveAsciiAreBytesToo) {
  const TriggerScanner scanner({"\xff\x80"});
  EXPECT_EQ(scanner.step(scanner.step(scanner.start(), 0xff), 0x80), TriggerScanner::kFound);
  EXPECT_NE(scanner.step(scanner.step(scanner.start(), 0xff), 0xff), scanner.start()) << "the second may begin it";
}

}  // namespace
}  // namespace shoal::grammar
