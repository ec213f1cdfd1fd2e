#include "text/tokenizer/unicode.h"

#include <chrono>

#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/pcre_regex.h"
#include "text/tokenizer/test_support.h"

namespace shoal {
namespace {

using unicode::Form;

TEST(UnicodeTest, SanitizeReplacesEachMaximalSubpart) {
  EXPECT_EQ(unicode::sanitize("a\xE2\x82z\xFF\xC0\x80"), "a\uFFFDz\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(unicode::sanitize("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(unicode::sanitize("é🙂"), "é🙂");
}

TEST(UnicodeTest, UnfinishedSuffixIsWhatMoreBytesCouldComplete) {
  EXPECT_EQ(unicode::unfinished_suffix("a\xF0\x9F\x99"), 3u);
  EXPECT_EQ(unicode::unfinished_suffix("a\xE2"), 1u);
  EXPECT_EQ(unicode::unfinished_suffix("a\x82"), 0u);
  EXPECT_EQ(unicode::unfinished_suffix("é"), 0u);
  EXPECT_EQ(unicode::unfinished_suffix("\xF5"), 0u);
}

TEST(UnicodeTest, NormalizesToTheFourForms) {
  EXPECT_EQ(unicode::normalize("e\u0301", Form::kNfc), "é");
  EXPECT_EQ(unicode::normalize("é", Form::kNfd), "e\u0301");
  EXPECT_EQ(unicode::normalize("ﬁ①", Form::kNfkc), "fi1");
  EXPECT_EQ(unicode::normalize("a\u0315\u0300", Form::kNfd), "a\u0300\u0315") << "marks are put in canonical order";
  EXPECT_EQ(unicode::normalize("한", Form::kNfd), "\u1112\u1161\u11AB");
  EXPECT_EQ(unicode::normalize(unicode::normalize("한", Form::kNfd), Form::kNfc), "한");
}

TEST(UnicodeTest, LongRunsOfMarksTakeNoQuadraticTime) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\u0315" : "\u0300";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(unicode::length(unicode::normalize(text, Form::kNfd)), 200'001u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(UnicodeTest, CaseMappingsAreFull) {
  std::string out;
  unicode::append_upper(out, U'ß');
  unicode::append_lower(out, U'İ');
  unicode::append_title(out, U'ǆ');
  EXPECT_EQ(out, "SSi\u0307ǅ");
}

std::vector<std::string> matches(const char* pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  std::vector<std::string> out;
  regex->for_each_match(text, [&](size_t begin, size_t end) { return out.emplace_back(text.substr(begin, end - begin)), true; });
  return out;
}

TEST(RegexTest, ReadsPatternsAsTokenizerFilesMeanThem) {
  using testing::ElementsAre;
  EXPECT_THAT(matches("\\p{L}+|\\s", "ab é\u3000"), ElementsAre("ab", " ", "é", "\u3000"));
  EXPECT_THAT(matches("[^\\s]+", "a\u180Eb c"), ElementsAre("a\u180Eb", "c")) << "U+180E is no space";
  EXPECT_THAT(matches("(?i:'s)", "'S 's"), ElementsAre("'S", "'s"));
  EXPECT_THAT(matches("\\s+$", "a \nb "), ElementsAre(" ", " ")) << "$ is the end of a line";
  EXPECT_THAT(matches("x*", "axb"), ElementsAre("", "x", ""));
}

TEST(RegexTest, RefusesWhatItCannotRead) {
  EXPECT_FALSE(Regex::compile("(a").ok());
  EXPECT_FALSE(Regex::compile("[a&&b]").ok());
  EXPECT_FALSE(Regex::compile("[a[b]]").ok());
  EXPECT_FALSE(Regex::compile(std::string(100'000, '(')).ok());
}

TEST(CharsmapTest, RefusesDamagedBlobs) {
  EXPECT_FALSE(Charsmap::parse("").ok());
  EXPECT_FALSE(Charsmap::parse(std::string("\xFF\xFF\xFF\x7F", 4)).ok());
  const auto map = Charsmap::parse(std::string("\x04\0\0\0\xFF\xFF\xFF\xFF", 8));
  ASSERT_TRUE(map.ok());
  MarkedText text{"abc", {}};
  map->apply(text);
  EXPECT_EQ(text.text, "abc") << "offsets out of range match nothing";
}

}  // namespace
}  // namespace shoal
